"""What a remedy gives back: by the cost model, the best layout one step away; or at most what was seen of a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.judging.neighbours import neighbours

if TYPE_CHECKING:
    from meshwright.diagnose.finding import Finding
    from meshwright.diagnose.run import Run
    from meshwright.judging.facts import Facts, Trial

BOUNDED = {
    "data.loading": ("data",), "host.launch": ("host", "launch"), "host.sync": ("sync",), "host.gc": ("gc",),
    "compile.recompiled": ("compile",),
}
"""Finding that no knob of a layout answers -> causes of idle time that its remedies take away."""


def best_change(facts: Facts, knobs: frozenset[str]) -> tuple[float, Trial] | None:
    """The largest gain of one step along the knobs, and where it leads; None where none is faster and fits.

    gain = 1 - step of the neighbour / step of the layout
    """
    best: tuple[float, Trial] | None = None
    for each in neighbours(facts.case, facts.features, facts.layout):
        if each.knob not in knobs or each.layout is None:
            continue
        trial = facts.trial(each.layout)
        gain = 1.0 - trial.step_s / facts.step_s
        if not trial.refused_because and trial.estimate.fits and gain > 0.0 and (best is None or gain > best[0]):
            best = (gain, trial)
    return best


def most_gain(run: Run, finding: Finding) -> float | None:
    """The share of the step that comes back at most where what a finding is about is gone altogether; None where nothing bounds it.

        gain <= sum over ranks of what each of them lost

    Ranks that lose time in turn, between exchanges, all wait for each of them: only of one device is the bound its own share, and
    where a rank is not seen there is none.
    """
    causes = BOUNDED.get(finding.id)
    if causes is None or finding.loss_ratio is None:
        return None
    if run.world == 1:
        return finding.loss_ratio
    seen = {each.rank: each for each in run.traces if each.rank is not None and each.split.window_s}
    if run.world is None or seen.keys() != set(range(run.world)):
        return None
    return min(1.0, sum(each.idle.get(cause, 0.0) / each.split.window_s for each in seen.values() for cause in causes))
