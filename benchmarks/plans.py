"""Each model of today planned once on a plausible cluster: ``python -m benchmarks.plans [--write]`` (docs/model-plans.md)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
FRAMEWORKS = ("megatron", "megatron@0.19", "accelerate")
"""The first that can train a model is asked."""
INTRODUCTION = f"""# Plans of hybrids and sparse models

Written by `python -m benchmarks.plans --write`: every catalogued model with linear mixers, sparse or gated attention, planned on a
cluster of its size, {TOKENS_A_STEP // 2**20} Mi tokens a step in sequences of {SEQUENCE}, BF16, for the first of
{", ".join(FRAMEWORKS)} that can train it here, with the calibration of that day, to which
few of these families gave runs. *MFU* counts
causal halves of attention and the recurrence token by token. A layout is written as `meshwright estimate --layout` reads it.

| model | layers that mix tokens | parameters | cluster | framework | best layout | step s | MFU % | memory GiB |
|---|---|---:|---|---|---|---:|---:|---:|"""


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
    device, nodes = cluster_of(parameters)
    head = f"| {name} | {mixing(model)} | {parameters / 1e9:,.1f} B | {nodes} x 8 {device} "
    found, framework, why = None, "", ""
    for framework in FRAMEWORKS:
        request = PlanRequest(
            model=name, device=device, nodes=nodes, global_batch=TOKENS_A_STEP // SEQUENCE, sequence=SEQUENCE, framework=framework
        )
        try:
            found = plan(request).to_json()
            break
        except (InputError, NoAnswerError) as error:
            why = why or str(error).splitlines()[0]
    if found is None:
        return f"{head}| none: {why} | | | | |"
    head += f"| {framework} "
    if not found["plans"]:
        return f"{head}| nothing fits | | | |"
    best = found["plans"][0]
    said = best["estimate"]
    memory, mfu = said["memory_reserved_bytes"] / 2**30, 100 * said["mfu_ratio"]
    return f"{head}| `{best['label']}` | {said['step_s']:.2f} | {mfu:.1f} | {memory:.1f} |"


def names() -> tuple[str, ...]:
    """The catalogued models that hold a published configuration."""
    return tuple(name for name in models() if published_config(name) is not None)


def page(chosen: tuple[str, ...]) -> Iterator[str]:
    """The page, line by line."""
    yield INTRODUCTION
    yield from (row_of(name) for name in chosen)


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
