"""Tables of dry runs beside the cost model: ``python -m benchmarks.dry_run [--write]`` (docs/dry-run.md). Two minutes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.engine.dry_run_layouts import CP, SP, TOKENS, TRIALS, case_of, zero

from meshwright.api.views.dryrun import figures
from meshwright.catalog import load_model
from meshwright.catalog.implementations import implementation
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout
from meshwright.engine.dry_run import Job, in_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.views.dryrun import Figure
    from meshwright.engine.dry_run import Found

PAGE = Path(__file__).parents[1] / "docs" / "dry-run.md"
BATCH = 16
"""Dry runs of one process."""
WIDE = replace(load_model("llama3-8b"), name="llama3-8b, 4 layers", pattern=(0,) * 4)
WIDE_TOKENS = 4096
MORE = {"num_microbatches": 2}
PEAKS = (
    (Layout(), 0), (Layout(**MORE), 0), (Layout(**MORE, recompute=Full()), 0), (Layout(**MORE, data_parallel=8), 0),
    (Layout(**MORE, data_parallel=8, **zero(1, 8)), 0), (Layout(**MORE, data_parallel=8, **zero(2, 8)), 0),
    (Layout(**MORE, data_parallel=8, **zero(3, 8)), 0), (Layout(**MORE, **CP, data_parallel=4, **zero(3, 8)), 0),
    (Layout(**MORE, **SP), 0), (Layout(**MORE, **SP, data_parallel=4, **zero(3, 4)), 0),
    (Layout(pipeline_parallel=2, num_microbatches=4), 0), (Layout(pipeline_parallel=2, num_microbatches=4), 1),
)
"""Layouts of real widths whose peaks are shown, and a rank of each."""
INTRODUCTION = """# Dry runs beside the cost model

Written by `python -m benchmarks.dry_run --write`. Each row is one step of one rank of the reference step (`engine/`) on fake
devices: PyTorch's own modules, sharding and schedules, with tensors that have no memory (`meshwright dryrun`). Beside it stands
what the cost model says for the implementation `torch-eager`. *Exact* means equal to the byte, the FLOP and the message:
parameters, FP32 parameters, gradients, optimizer states, products, attention, and every sort of collective with its payload.
Models have 2 or 4 layers of width 128 and sequences of {tokens} tokens, so that what the cost model leaves out shows most.
"""
ACTIVATIONS = """
## Activations in flight, and everything else

What is left: FP32 scales of norms (one number a token), indices of tokens and of routing, and scalars, which the tables of
saved tensors do not have. Where a backward is split (`zb1p`), PyTorch keeps the gradient of the last micro-batch's logits until
the next step.
Recurrences of linear mixers are counted apart from products: Mamba-2 is exact; of a gated delta net the first chunk has no state to
go back through, and its triangular system has a product more in the backward than the formula counts (within 5 %).

| model | layout | rank | activations, dry run | cost model | difference | all other figures |
|---|---|---:|---:|---:|---:|---|"""
HEIGHTS = """
## Peaks at real widths

{model}, {tokens:,} tokens, implementation `reference`. The cost model's peak is the most that a step can hold: all gradients beside
all activations in flight; at the loss 12 bytes a logit (FP32 log-softmax, the gradients of the likelihood and of the log-softmax),
16 where tensor ranks split the vocabulary.

| layout | micro-batches | rank | peak, dry run, GiB | cost model, GiB | difference | where |
|---|---:|---:|---:|---:|---:|---|"""
REASONS = """
Why they differ: a first micro-batch has no gradients yet when activations are most, and the cost model counts them; messages of
sharded parameters (a unit's gather and reduce-scatter buffers, of the ends most) are temporary memory that the cost model counts
for layers.
"""


def main() -> int:
    """Print both tables, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/dry-run.md")
    text = "\n".join(page()) + "\n"
    if parser.parse_args().write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def page() -> Iterator[str]:
    """The lines of the page."""
    yield INTRODUCTION.format(tokens=TOKENS).rstrip()
    yield ACTIVATIONS
    for trial, found in zip(TRIALS, found_by([trial.job for trial in TRIALS]), strict=True):
        yield activations(trial.model.name, trial.layout, found, figures(case_of(trial.model, trial.layout), trial.layout, found))
    yield HEIGHTS.format(model=WIDE.name, tokens=WIDE_TOKENS)
    jobs = [Job(model=WIDE, layout=layout, rank=rank, sequence_tokens=WIDE_TOKENS) for layout, rank in PEAKS]
    for (layout, _), found in zip(PEAKS, found_by(jobs), strict=True):
        yield peak(layout, found)
    yield REASONS.rstrip()


def found_by(jobs: Sequence[Job]) -> Iterator[Found]:
    """What the jobs find, in order."""
    for first in range(0, len(jobs), BATCH):
        yield from in_process(jobs[first : first + BATCH])


def activations(model: str, layout: Layout, found: Found, shown: Sequence[Figure]) -> str:
    """One row of the first table."""
    rows = {each.name: each for each in shown}
    kept = rows.pop("activations in flight")
    rows.pop("peak")
    others = [f"{each.name} {each.found:,} / {each.said:,}" for each in rows.values() if each.difference_ratio != 0.0]
    words = f"{model} | {label(layout)} | {found.rank} | {kept.found:,} | {kept.said:,}"
    return f"| {words} | {100 * (kept.difference_ratio or 0.0):+.2f} % | {'; '.join(others) or 'exact'} |"


def peak(layout: Layout, found: Found) -> str:
    """One row of the second."""
    case = replace(case_of(WIDE, layout, WIDE_TOKENS), implementation=implementation("reference"))
    shown = figures(case, layout, found)
    row = next(each for each in shown if each.name == "peak")
    words = f"{label(layout)} | {layout.num_microbatches} | {found.rank} | {row.found / 2**30:.2f} | {row.said / 2**30:.2f}"
    return f"| {words} | {100 * (row.difference_ratio or 0.0):+.1f} % | {found.peak_at} |"


if __name__ == "__main__":
    sys.exit(main())
