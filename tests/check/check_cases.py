"""Files to be judged: a good picotron configuration, a good Megatron script, and whatever a test changes in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.check import Question, check, claim
from meshwright.check.run import CHECKS
from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given

if TYPE_CHECKING:
    from meshwright.check import Checked
    from meshwright.check.run import Check
    from meshwright.domain.case import Case
    from meshwright.frameworks.settings import Finding

PICOTRON: Mapping[str, Mapping[str, object]] = {
    "distributed": {"tp_size": 4, "cp_size": 1, "pp_size": 1, "dp_size": 4, "pp_engine": "1f1b", "use_cpu": False},
    "model": {"name": "meta-llama/Meta-Llama-3-8B", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    "training": {
        "seed": 1, "learning_rate": 0.0003, "total_train_steps": 10, "seq_length": 4096, "micro_batch_size": 1,
        "gradient_accumulation_steps": 32, "num_samples": None, "max_tokens": None,
    },
    "dataset": {"name": "a/b", "subset_name": None, "num_workers": 0, "num_proc": 1},
    "checkpoint": {"save_dir": "c", "save_frequency": 100, "load_path": ""},
    "logging": {"use_wandb": False, "project_name": "p", "run_name": None},
    "environment": {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "FLASH_ATTEN": "1", "HF_TOKEN": None},
}
MEGATRON: Mapping[str, object] = {
    "--tensor-model-parallel-size": 8, "--pipeline-model-parallel-size": 4, "--micro-batch-size": 1, "--global-batch-size": 256,
    "--num-layers": 80, "--hidden-size": 8192, "--ffn-hidden-size": 28672, "--num-attention-heads": 64,
    "--group-query-attention": True, "--num-query-groups": 8, "--seq-length": 4096, "--max-position-embeddings": 4096,
    "--swiglu": True, "--normalization": "RMSNorm", "--position-embedding-type": "rope", "--disable-bias-linear": True,
    "--untie-embeddings-and-output-weights": True, "--bf16": True, "--sequence-parallel": True,
    "--use-distributed-optimizer": True, "--overlap-grad-reduce": True, "--overlap-param-gather": True,
}
"""Llama 2 70B."""


def picotron_text(changes: Mapping[str, object] | None = None) -> str:
    """The configuration with dotted keys set, or (None) taken out."""
    document = {section: dict(values) for section, values in PICOTRON.items()}
    for key, value in (changes or {}).items():
        section, name = key.split(".")
        if value is None:
            document[section].pop(name, None)
        else:
            document.setdefault(section, {})[name] = value
    return json.dumps(document, indent=2)


def megatron_text(
    changes: Mapping[str, object] | None = None, *, environment: Mapping[str, object] | None = None, nodes: int = 8
) -> str:
    """The script with flags set, or (None) taken out; one flag a line."""
    flags = {**MEGATRON, **(changes or {})}
    variables = {"CUDA_DEVICE_MAX_CONNECTIONS": 1, **(environment or {})}
    lines = [f"export {name}={value}" for name, value in variables.items() if value is not None]
    words = [name if value is True else f"{name} {value}" for name, value in flags.items() if value is not None]
    command = [f"torchrun --nproc_per_node 8 --nnodes {nodes} pretrain_gpt.py", *words]
    return "\n".join([*lines, " \\\n  ".join(command)]) + "\n"


@cache
def case_of(model: str, device: str, devices: int, batch: int, sequence: int, runs_on: str) -> Case:
    """A case without a fit, which is slow to compare."""
    cluster = cluster_for(device, num_devices=devices)
    return make_case(model, cluster, global_batch_sequences=batch, sequence_tokens=sequence, framework=runs_on)


def judged(
    texts: Mapping[str, str],
    runs_on: str,
    case: Case | None = None,
    claims: Mapping[str, float] | None = None,
    *,
    checks: tuple[Check, ...] = CHECKS,
) -> Checked:
    """Files checked, for a case or for themselves; by all checks, or by some."""
    named = framework(runs_on)
    given = Given() if case is None else Given(num_devices=case.cluster.num_devices, model=case.model)
    files = [File(path=path, text=text) for path, text in texts.items()]
    reading = named.read(files, version=named.version if "@" in runs_on else None, given=given)
    return check(
        Question(
            framework=named.at(reading.version), reading=reading, case=case, model=case.model if case else None,
            claims=tuple(claim(name, value) for name, value in (claims or {}).items()),
        ),
        checks,
    )


def picotron(changes: Mapping[str, object] | None = None, *, alone: bool = False, **claims: float) -> Checked:
    """The picotron configuration, changed, for Llama 3 8B on 16 H100."""
    case = None if alone else case_of("llama3-8b", "h100-sxm", 16, 128, 4096, "picotron")
    return judged({"config.json": picotron_text(changes)}, "picotron", case, claims)


def megatron(
    changes: Mapping[str, object] | None = None, *, alone: bool = False, version: str = "0.16",
    environment: Mapping[str, object] | None = None, checks: tuple[Check, ...] = CHECKS, **claims: float,
) -> Checked:
    """The Megatron script, changed, for Llama 2 70B on 64 H100."""
    case = None if alone else case_of("llama2-70b", "h100-sxm", 64, 256, 4096, "megatron")
    return judged({"train.sh": megatron_text(changes, environment=environment)}, f"megatron@{version}", case, claims, checks=checks)


def found(checked: Checked, id: str) -> list[Finding]:
    """The findings of one identifier."""
    return [each for each in checked.findings if each.message.id == id]


def ids(checked: Checked, severity: str = "") -> set[str]:
    """Identifiers, of one severity or of all."""
    return {each.message.id for each in checked.findings if severity in ("", each.severity)}
