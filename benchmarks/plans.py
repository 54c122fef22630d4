"""Each model of today planned once on a plausible cluster: ``python -m benchmarks.plans [--write]`` (docs/model-plans.md)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright import InputError, PlanRequest, plan
from meshwright.catalog import load_model, models
from meshwright.catalog.model_sheet import published_config
from meshwright.domain.mixers import MIXER_NAMES
from meshwright.errors import NoAnswerError
from meshwright.perf.parameters import total_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.model import Model

PAGE = Path(__file__).parents[1] / "docs" / "model-plans.md"
TOKENS_A_STEP = 4 * 2**20
SEQUENCE = 4096
FRAMEWORKS = ("megatron", "megatron@0.19", "accelerate", "deepspeed")
"""The first that has a plan for a model is taken."""
LARGER = "b300"
"""Devices of as many nodes, where nothing fits on those of its size."""
MOST_USED: tuple[tuple[str, str, int, int, int, str], ...] = (
    ("qwen3-next-80b-a3b", "h100", 32, 1024, 4096, "megatron"),
    ("qwen3.5-397b-a17b", "h200", 64, 1024, 8192, "megatron"),
    ("nemotron-3-nano-30b-a3b", "h100", 16, 1024, 8192, "megatron"),
    ("nemotron-3-super-120b-a12b", "h100", 32, 1024, 8192, "megatron@0.19"),
    ("deepseek-v3.2", "h100", 128, 2048, 4096, "megatron@0.19"), ("glm-5.2", "gb200", 48, 1024, 4096, "megatron@0.19"),
    ("glm4.6", "h100", 64, 1024, 4096, "megatron"), ("kimi-k2", "h100", 128, 2048, 4096, "megatron"),
    ("gpt-oss-120b", "h100", 16, 1024, 8192, "megatron"), ("llama4-maverick", "h100", 64, 1024, 8192, "megatron"),
    ("minimax-m3", "b200", 64, 1024, 4096, "deepspeed"), ("gemma3-27b", "h100", 8, 256, 8192, "accelerate"),
)
"""Model, device, nodes, global batch, sequence and framework of those that people train most."""
INTRODUCTION = f"""# Plans of hybrids and sparse models

Written by `python -m benchmarks.plans --write`: every catalogued model with linear mixers, sparse or gated attention, planned on a
cluster of its size (of {LARGER.upper()} where nothing fits there), {TOKENS_A_STEP // 2**20} Mi tokens a step in sequences of
{SEQUENCE}, BF16, for the first of {", ".join(FRAMEWORKS)} that has a plan for it, with the calibration of that day, to which few of
these families gave runs. *MFU* counts causal halves of attention and the recurrence token by token. A layout is written as
`meshwright estimate --layout` reads it. Below, those that people train most.

| model | layers that mix tokens | parameters | cluster | framework | best layout | step s | MFU % | memory GiB |
|---|---|---:|---|---|---|---:|---:|---:|"""
READ = """
## The most used, read through

Each of these answers was read whole: the plan, `explain`, the written files and the checks of the release that reads them.
*Fits* is the chance that memory suffices. What decides them:

- **Gated delta nets** (Qwen3-Next, Qwen3.5): core 0.16 cuts no sequences of theirs, later cores cut their heads over tensor and
  context ranks; the kernels are those of flash-linear-attention.
- **Hybrids of single blocks** (Nemotron-3): no virtual stages and no multi-token prediction before core 0.17, no full recomputation
  before 0.18; from 0.17 on the pattern places the stages.
- **Sparse attention** (DeepSeek-V3.2, GLM-5): until core 0.18 scores of all heads and tokens are FP32 matrices, which is not
  planned; from 0.19 on fused kernels (`--dsa-kernel-backend cudnn`), keys gathered under context parallelism, and stages that begin
  with a layer that chooses (GLM-5.2: one in four).
- **Sinks and windows** (GPT-OSS, Llama 4): sinks leave context parallelism by heads alone, windows that or gathered keys; chunks of
  Llama 4 are written as windows, and its layers without rotation are left to `--no-rope-freq`.
- **Norms around blocks, block-sparse attention** (Gemma 3, MiniMax M3): no core of Megatron-LM builds them; through their class of
  transformers.

| model | cluster | batch | framework | best layout | step s | MFU % | memory GiB | fits % |
|---|---|---|---|---|---:|---:|---:|---:|"""


def cluster_of(parameters: float) -> tuple[str, int]:
    """Device and nodes on which people train a model of so many parameters."""
    sizes = ((2e9, "h100", 1), (12e9, "h100", 4), (60e9, "h100", 16), (150e9, "h100", 32), (500e9, "h100", 64))
    return next(((device, nodes) for most, device, nodes in sizes if parameters < most), ("b200", 128))


def mixing(model: Model) -> str:
    """What mixes the tokens, with how many layers do so."""
    counts: dict[str, int] = {}
    for index in model.pattern:
        kind = model.kinds[index]
        names = [MIXER_NAMES[type(kind.mixer)]] if kind.mixer is not None else []
        attention = kind.attention
        if attention is not None:
            sparse = attention.selected_tokens is not None
            form = "compressed" if attention.compressed else "latent" if attention.latent else "grouped"
            window = ", window" if attention.window_tokens and not attention.compressed else ""
            names.append(f"{'sparse ' if sparse else ''}{form} attention{window}")
        if names:
            counts[" + ".join(names)] = counts.get(" + ".join(names), 0) + 1
    return "; ".join(f"{count} {name}" for name, count in counts.items())


def row_of(name: str) -> str:
    """One model's line."""
    model = load_model(name)
    parameters = total_parameters(model)
    usual, nodes = cluster_of(parameters)
    found, device, framework, why = None, usual, "", ""
    for device, framework in ((each, other) for each in (usual, LARGER) for other in FRAMEWORKS):
        request = PlanRequest(
            model=name, device=device, nodes=nodes, global_batch=TOKENS_A_STEP // SEQUENCE, sequence=SEQUENCE, framework=framework
        )
        try:
            found = plan(request).to_json()
        except (InputError, NoAnswerError) as error:
            why = why or str(error).splitlines()[0]
            continue
        if found["plans"]:
            break
    head = f"| {name} | {mixing(model)} | {parameters / 1e9:,.1f} B | {nodes} x 8 {device} "
    if found is None:
        return f"{head}| none: {why} | | | | |"
    if not found["plans"]:
        return f"{head}| {framework} | nothing fits | | | |"
    label, step, mfu, memory, _ = best_of(found)
    return f"{head}| {framework} | `{label}` | {step} | {mfu} | {memory} |"


def best_of(found: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """The first plan's layout, seconds of a step, MFU, memory and chance to fit, as they are printed."""
    said = found["plans"][0]["estimate"]
    memory, mfu = said["memory_reserved_bytes"] / 2**30, 100 * said["mfu_ratio"]
    fits = 100 * said["memory_fit_probability"]
    return found["plans"][0]["label"], f"{said['step_s']:.2f}", f"{mfu:.1f}", f"{memory:.1f}", f"{fits:.0f}"


def read_row(name: str, device: str, nodes: int, batch: int, sequence: int, framework: str) -> str:
    """One line of those that were read."""
    request = PlanRequest(model=name, device=device, nodes=nodes, global_batch=batch, sequence=sequence, framework=framework)
    answer = plan(request)
    label, step, mfu, memory, fits = best_of(answer.to_json())
    cluster = answer.given.case.cluster
    return (
        f"| {name} | {nodes} x {cluster.devices_per_node} {device} | {batch:,} x {sequence:,} | {framework} | `{label}` | {step} | "
        f"{mfu} | {memory} | {fits} |"
    )


def names() -> tuple[str, ...]:
    """The catalogued models that hold a published configuration."""
    return tuple(name for name in models() if published_config(name) is not None)


def page(chosen: tuple[str, ...]) -> Iterator[str]:
    """The page, line by line."""
    yield INTRODUCTION
    yield from (row_of(name) for name in chosen)
    yield READ
    yield from (read_row(*each) for each in MOST_USED)


def main() -> int:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/model-plans.md")
    parser.add_argument("names", nargs="*", help="only these models (not with --write)")
    asked = parser.parse_args()
    text = "\n".join(page(tuple(asked.names) or names())) + "\n"
    if asked.write and not asked.names:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
