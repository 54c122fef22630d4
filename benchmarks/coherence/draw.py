"""Cases drawn as options of the command line: models, clusters, frameworks, tasks, precisions, batches, sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshwright.catalog import cluster_for, precision, precisions
from meshwright.documents.quoting import command
from meshwright.frameworks import frameworks

if TYPE_CHECKING:
    import random

SMALL = ("llama3-8b", "llama2-7b", "llama2-13b", "qwen2.5-7b", "gemma2-9b", "gpt2-xl")
LARGE = ("llama3-70b", "llama2-70b", "gpt3-175b", "bloom-176b", "llama3.1-405b", "nemotron4-340b")
MIXTURES = ("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-120b", "qwen3-235b-a22b", "deepseek-v3")
DEVICES = ("h100-sxm", "h100-sxm", "h100-sxm", "a100-40g-sxm", "a100-80g-sxm", "h200", "b200", "mi300x", "v100-32g", "rtx-4090")
ASCEND = ("ascend-910b", "ascend-910b", "ascend-910c", "ascend-910a")
NODES = (1, 1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16, 16, 32)
LENGTHS = "docs/lengths.txt"
"""2,048 lengths of samples, from the root of the repository."""
SEQUENCES = ("2048", "4096", "4096", "8192", "8192", "32k", "128k")


def drawn(rng: random.Random) -> dict[str, Any]:
    """A case: mostly what people train, with clusters too small, odd numbers of nodes, mixtures and long sequences among them."""
    name = rng.choice((None, None, None, *frameworks()))
    family = name is not None and name.startswith("mind")
    device = rng.choice(ASCEND if family or rng.random() < 0.05 else DEVICES)
    options: dict[str, Any] = {
        "model": rng.choice(rng.choices((SMALL, LARGE, MIXTURES), (5, 3, 3))[0]), "device": device, "nodes": rng.choice(NODES),
    }
    if rng.random() < 0.15:
        options["layers"] = rng.choice((2, 4, 7, 13, 16))
    per_node = cluster_for(device, nodes=1).devices_per_node
    devices, sequence = options["nodes"] * per_node, rng.choice(SEQUENCES)
    long = sequence in ("32k", "128k")
    batches = (devices, 4 * devices, 64, 128, 60, 256) if long else (devices, 8 * devices, 256, 512, 1024, 96, 360)
    options["global_batch"] = rng.choice(batches)
    options["sequence"] = sequence
    task = rng.choices(("pretrain", "sft", "lora"), (7, 2, 2))[0]
    if task != "pretrain":
        options["task"] = task
    able = [each for each in precisions() if precision(each).runs_on(cluster_for(device, nodes=1).device)]
    chosen = rng.choice(able) if able and (rng.random() < 0.2 or "bf16" not in able) else "bf16"
    if chosen != "bf16":
        options["precision"] = chosen
    if name is not None:
        options["framework"] = name
    if rng.random() < 0.1:
        options["calibration"] = "none"
    if rng.random() < 0.1:
        options["max_memory_ratio"] = rng.choice((0.4, 0.7, 0.98))
    if rng.random() < 0.1:
        options["gradient_dtype"] = rng.choice(("fp32", "bf16"))
    rare = rng.random()
    if rare < 0.08:
        options |= tiny(rng)
    elif rare < 0.16:
        options |= packed(rng, options)
        options.pop("sequence")
    return options


def tiny(rng: random.Random) -> dict[str, Any]:
    """The least that can be asked: one layer, one sequence, one token."""
    return {
        "layers": rng.choice((1, 1, 2, 3)), "sequence": rng.choice(("1", "2", "16", "100")),
        "global_batch": rng.choice((1, 1, 2, 3, 8)), "nodes": rng.choice((1, 1, 2)),
    }


def packed(rng: random.Random, options: Mapping[str, Any]) -> dict[str, Any]:
    """Samples of a file of lengths instead of sequences of one length."""
    per_node = cluster_for(options["device"], nodes=1).devices_per_node
    return {"lengths": LENGTHS, "global_batch": options["nodes"] * per_node * rng.choice((4, 16, 64))}


MODEL: Mapping[str, tuple[str, ...]] = {"atlas": ("--models",), "check": ("--model",)}
"""Where a verb takes the model, if not as its argument."""


def shell(verb: str, options: Mapping[str, Any]) -> str:
    """The command line of a verb: what a user would type; ``files`` are arguments."""
    words = ["meshwright", verb, *map(str, options.get("files", ())), *MODEL.get(verb, ()), str(options["model"])]
    for name, value in options.items():
        if name in ("model", "files") or (verb == "check" and name == "framework"):
            continue  # files say whose they are by --from
        for each in value if isinstance(value, (list, tuple)) else [value]:
            words += [f"--{name.rstrip('_').replace('_', '-')}", *([] if each is True else [str(each)])]
    return str(command(*words))
