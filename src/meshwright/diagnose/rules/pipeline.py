"""Waiting in a pipeline: filling and draining it, stages that are slower than others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import HIGH, Evidence, Finding, severity_of
from meshwright.diagnose.remedies import remedies
from meshwright.diagnose.split import ideal_bubble
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.readers.logs.parts import part_of
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

WAITING = ("receive", "send", "exchange", "embedding_reduce")


def pipeline(run: Run) -> Iterator[Finding]:
    """The bubble of filling and draining, and what waits beside it."""
    split, layout = run.split, run.layout
    if split is None:
        return
    evidence = tuple(_timers(run))
    if split.bubble_ratio is not None and split.bubble_ratio >= HIGH:
        by_formula = f"; by the schedule's formula {percent(ideal_bubble(layout))}" if layout is not None else ""
        stages = f" in {layout.pipeline_parallel} stages with {layout.num_microbatches} micro-batches" if layout is not None else ""
        yield Finding(
            message=Message(
                "pipeline.bubble",
                "the pipeline{stages} fills and drains for {share} of the step{formula}",
                {"stages": stages, "share": percent(split.bubble_ratio), "formula": by_formula},
            ),
            severity=severity_of(split.bubble_ratio),
            loss_ratio=split.bubble_ratio,
            evidence=evidence,
            remedies=remedies("pipeline.bubble", run.framework),
            refuted_by="the share stays when the number of micro-batches is doubled",
        )
    if split.waiting_ratio is not None and split.bubble_ratio is not None and split.waiting_ratio >= HIGH:
        yield Finding(
            message=Message(
                "pipeline.waiting",
                "stages wait {share} of the step for their neighbours beyond filling and draining: some stage "
                "is slower than this one, or transfers are slow",
                {"share": percent(split.waiting_ratio)},
            ),
            severity=severity_of(split.waiting_ratio),
            loss_ratio=split.waiting_ratio,
            evidence=evidence,
            remedies=remedies("pipeline.waiting", run.framework),
            refuted_by="every stage prints the same wait: then transfers are slow, not a stage",
        )


def _timers(run: Run) -> Iterator[Evidence]:
    if run.steady is None or run.log is None:
        return
    place = Place(file=run.log.file, line=run.steady.steps[0].line)
    for name, spent in sorted(run.steady.parts.items(), key=lambda each: -each[1]):
        if part_of(name) in WAITING:
            yield Evidence(
                f"timer {name}: {seconds(spent)} of {seconds(run.steady.step_s)} ({percent(spent / run.steady.step_s)})", place
            )
