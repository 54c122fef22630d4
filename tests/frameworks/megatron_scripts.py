"""Launch scripts for the tests: of flags, and what a reading of them finds."""

from __future__ import annotations

from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Finding, Given, Reading

MEGATRON = framework("megatron")
MODEL = "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --max-position-embeddings 4096"


def script(*flags: str, devices: int = 64, environment: str = "", launcher: str = "torchrun", model: str = MODEL) -> str:
    """A script that launches ``pretrain_gpt.py`` on nodes of eight devices."""
    lines = [f"export {word}" for word in environment.split()]
    words = " ".join(("--micro-batch-size 1", "--global-batch-size 256", "--seq-length 4096", "--bf16", model, *flags))
    return "\n".join([*lines, f"{launcher} --nnodes {devices // 8} --nproc_per_node 8 pretrain_gpt.py {words}", ""])


def read(text: str, *, version: str | None = None, given: Given | None = None, **files: str) -> Reading:
    """A script, with other files beside it (``ds_config_json=text``), as Megatron-LM's adapter reads it."""
    others = [File(path=name.replace("_json", ".json"), text=body) for name, body in files.items()]
    return MEGATRON.read([File(path="train.sh", text=text), *others], version=version, given=given or Given())


def findings(reading: Reading, case: object = None) -> dict[str, Finding]:
    """What the checks of the reading's release find, by the rule's name; the last of each."""
    there = MEGATRON.at(reading.version)
    return {
        finding.message.id.removeprefix("megatron."): finding
        for check in there.checks for finding in check.findings(reading, case)  # type: ignore[arg-type]
    }
