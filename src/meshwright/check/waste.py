"""What the same cluster could do with the same model and batch, and where the step's time is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.domain.estimate import Infeasible
from meshwright.errors import InputError
from meshwright.frameworks.editing import edit
from meshwright.judging.start import differences
from meshwright.search import plan
from meshwright.search.plan import ranking_error
from meshwright.search.result import SearchOptions
from meshwright.words import percent, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.domain.estimate import Estimate
    from meshwright.frameworks.editing import Edit
    from meshwright.frameworks.settings import Finding

BUBBLE, COMMUNICATION = 0.10, 0.20
"""Shares of the step worth naming; the guides take 15 to 20 % of communication for good (003:103, 003:127)."""
PATIENCE_S = 120.0
"""The search is given up after so long; the check then says so."""


class _TooLongError(Exception):
    """The search took longer than a check may."""


def waste(context: Context) -> Iterator[Finding]:
    """The best layout of the search beside this one."""
    if context.case is None:
        return
    best, missing = _best(context)
    if isinstance(best, InputError):
        for message in best.messages:
            yield finding("error", "check.nothing-legal", "{reason}", reason=str(message), source="search")
        return
    if missing:
        yield finding(
            "advice", "check.nothing-fits", "no layout fits; what would close the gap: {levers}", path="layout",
            levers="; ".join(missing), source="search",
        )
    if best is None:
        return
    own = context.estimate
    if own is None:
        yield finding(
            "advice", "check.better", "a layout that works: {label} is predicted to take {step} a step at {mfu} MFU",
            path="layout", label=best.label, step=seconds(best.step_s), mfu=percent(best.mfu_ratio), expected=best.label,
            source="search",
        )
    elif own.expected_step_s > best.expected_step_s * (1.0 + ranking_error(context.case)) or not own.fits:
        gain = own.step_s / best.step_s - 1.0
        words = "{label} is predicted to take {best} a step{interval} instead of {own}, {gain} throughput; change: {changes}"
        if gain <= 0.0:
            words = "{label} is more likely to fit: {expected_best} a step are expected with the risk of not running, instead of " \
                "{expected_own}; where both run, {best}{interval} and {own}; change: {changes}"
        if not own.fits:
            words = "the best layout that fits: {label}, {best} a step{interval}; change: {changes}"
        yield finding(
            "advice", "check.better", words, path="layout", value=own.label, expected=best.label, label=best.label,
            best=seconds(best.step_s), own=seconds(own.step_s), gain=signed(gain, 0), interval=_interval(best),
            expected_best=seconds(best.expected_step_s), expected_own=seconds(own.expected_step_s),
            changes=changed(context, best), source=f"search, calibration {own.calibration}",
        )


def _best(context: Context) -> tuple[Estimate | InputError | None, tuple[str, ...]]:
    """The first plan; the reason where none is legal; None where it takes too long, and with what would help where nothing fits."""
    case, framework = context.case, context.framework
    assert case is not None, "the caller has checked"
    begun = time.monotonic()

    def tick(done: float, total: float) -> None:
        if time.monotonic() - begun > PATIENCE_S:
            raise _TooLongError

    try:
        result = plan(
            case, framework.features, SearchOptions(top=1, pinnable=False), progress=tick,
            runner=framework, bare=True,
        )
    except _TooLongError:
        context.skipped.append(f"whether the cluster could do better: the search took more than {PATIENCE_S:.0f} s")
        return None, ()
    except InputError as error:
        return error, ()
    if result.plans and not result.refused:
        return result.plans[0].estimate, ()
    unmet = result.verdict.unmet if isinstance(result.verdict, Infeasible) else ()
    return None, tuple(lever for each in unmet for lever in each.levers)


def _interval(best: Estimate) -> str:
    """Where the better step lies."""
    if best.interval is None:
        return ""
    low, high = best.interval.step_s
    return f" ({percent(best.interval.level, 0)} of runs: {seconds(low)} to {seconds(high)})"


def changed(context: Context, best: Estimate) -> str:
    """The changes in the framework's own keys where the files can be edited, else in layout words."""
    layout, case = context.layout, context.case
    assert case is not None, "the caller has checked"
    if layout is not None and context.framework.decide is not None:
        try:
            edits = edit(context.framework, context.reading, case, best.layout).edits
        except InputError:  # a file that cannot be edited in place is still judged
            edits = ()
        if edits:
            return ", ".join(map(_change, edits))
    return ", ".join(differences(layout, best.layout)) if layout is not None else best.label


def _change(each: Edit) -> str:
    """One edit in a sentence: ``--tp 2 -> 4``, ``add --sequence-parallel``, ``remove --recompute-granularity``."""
    flag = each.key.startswith("-")
    if each.after is None or (flag and each.after is False):
        return f"remove {each.key}"
    if each.before is None or (flag and each.before is False):
        return f"add {each.key}" + ("" if flag and each.after is True else f" {_value(each.after)}")
    return f"{each.key} {_value(each.before)} -> {_value(each.after)}"


def _value(value: object) -> str:
    """A value of a key in a sentence."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def losses(context: Context) -> Iterator[Finding]:
    """Bubble and exposed communication, where they are large."""
    found, layout = context.estimate, context.layout
    if found is None or layout is None:
        return
    if found.bubble_ratio > BUBBLE:
        yield finding(
            "advice", "check.bubble",
            "the pipeline is idle for {share} of the step, more than {bound}: {stages} stages, {chunks} virtual, {count} "
            "micro-batches",
            path=context.knob_place("pp") or "layout", value=found.bubble_ratio, expected=BUBBLE,
            share=percent(found.bubble_ratio), bound=percent(BUBBLE, 0), stages=layout.pipeline_parallel,
            chunks=layout.virtual_stages,
            count=layout.num_microbatches, source=f"prediction, calibration {found.calibration}",
        )
    time_s = found.time
    parts = {
        "tensor-parallel": time_s.tensor_parallel_s, "context-parallel": time_s.context_parallel_s,
        "expert-parallel": time_s.expert_parallel_s, "pipeline": time_s.pipeline_exposed_s,
        "data-parallel": time_s.data_parallel_exposed_s,
    }
    share = sum(parts.values()) / found.step_s
    if share > COMMUNICATION:
        largest = sorted(parts.items(), key=lambda part: -part[1])[:2]
        yield finding(
            "advice", "check.communication", "exposed communication takes {share} of the step, more than {bound}: {largest}",
            path="layout", value=share, expected=COMMUNICATION, share=percent(share), bound=percent(COMMUNICATION, 0),
            largest=", ".join(f"{name} {percent(part / found.step_s, 0)}" for name, part in largest if part),
            source=f"prediction, calibration {found.calibration}; guide 003:103",
        )
