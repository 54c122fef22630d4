"""The whole of it: what was seen, whether it is normal, what was lost and to what, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from meshwright.diagnose.expected import Expected, expected, longer, speed, why_not
from meshwright.diagnose.gains import best_change, most_gain
from meshwright.diagnose.guides import GuideFigure, guide_figures
from meshwright.diagnose.rules import rules_of

if TYPE_CHECKING:
    from meshwright.diagnose.finding import Finding
    from meshwright.diagnose.run import Run

Verdict = Literal["normal", "slow", "failed", "hung", "unknown"]
KNOBS = {
    "pipeline.bubble": ("vp", "pp", "mb", "schedule"),
    "pipeline.waiting": ("vp", "pp"),
    "communication.tp": ("tp", "sp", "cp"),
    "communication.cp": ("cp", "tp"),
    "communication.ep": ("ep", "etp"),
    "communication.dp": ("zero", "mb", "pp", "tp"),
    "host.launch": ("mb", "tp", "cp"),
    "kernels.small": ("mb", "tp"),
    "optimizer.slow": ("zero", "offload"),
    "memory.headroom": ("recompute", "mb", "tp", "pp"),
    "memory.uneven": ("recompute", "vp"),
    "expected.tp": ("tp",),
    "expected.dp": ("zero", "mb"),
    "expected.pp": ("vp", "pp"),
}
"""Finding -> knobs of a layout that answer it."""
FAILED = frozenset({"oom", "nccl", "node", "user"})


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What is said of a run."""

    run: Run
    verdict: Verdict
    expected: tuple[Expected, ...]
    findings: tuple[Finding, ...]
    guides: tuple[GuideFigure, ...]

    @property
    def effective_tokens_per_s_per_device(self) -> float | None:
        """Without bubble, communication, waits and host: the rate over the share of the step that computes."""
        rate, split = self.run.tokens_per_s_per_device, self.run.split
        return None if rate is None or split is None or not split.compute_ratio else rate / split.compute_ratio

    @property
    def notes(self) -> tuple[str, ...]:
        """What readers assumed or left out, and why a prediction is not set beside what was seen."""
        read = (note for each in self.run.observations for note in getattr(each, "notes", ()))
        return tuple(dict.fromkeys((*read, *filter(None, [why_not(self.run)]))))

    @property
    def ok(self) -> bool:
        """Whether the run neither failed nor hung."""
        return self.verdict not in ("failed", "hung")


def diagnose(run: Run) -> Diagnosis:
    """Judge a run.

    Findings are ordered: what ended the run, then by the gain that the cost model predicts for the best change of one knob, or by
    the share that was lost where nothing can be predicted.
    """
    found = [_priced(run, each) for each in _asked(run)]
    return Diagnosis(
        run=run,
        verdict=_verdict(run, found),
        expected=expected(run),
        findings=tuple(sorted(_once(found), key=lambda each: each.weight)),
        guides=guide_figures(run),
    )


def _asked(run: Run) -> Iterator[Finding]:
    for rule in rules_of(run):
        yield from rule(run)
    yield from longer(run)


def _once(found: list[Finding]) -> Iterator[Finding]:
    """A finding of one kind once, the heaviest; several that name different devices or ranks stay."""
    kept: dict[str, Finding] = {}
    for each in sorted(found, key=lambda each: each.weight):
        kept.setdefault(str(each.message), each)
    yield from kept.values()


def _priced(run: Run, finding: Finding) -> Finding:
    """With the gain of the best change that answers it, or what the part that was seen bounds it by."""
    knobs = KNOBS.get(finding.id)
    if run.facts is None or knobs is None:
        bound = most_gain(run, finding)
        return finding if bound is None else replace(finding, predicted_gain_ratio=bound, at_most=True)
    found = best_change(run.facts, frozenset(knobs))
    if found is None:
        return replace(finding, predicted_gain_ratio=0.0)
    gain, trial = found
    return replace(finding, predicted_gain_ratio=gain, change=run.facts.label(trial.layout))


def _verdict(run: Run, found: list[Finding]) -> Verdict:
    status = run.ending.status if run.ending is not None else ""
    if status == "hang" or run.hang is not None:
        return "hung"
    if status in FAILED or run.out_of_memory:
        return "failed"
    return speed(run)
