"""The answer of ``sweep`` and ``tune``: what each trial came to beside its prediction, how those ended that failed, the best one's
files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Cell, Run, cell, figure, line, table
from meshwright.report.rehearse import terse
from meshwright.words import about, plural, rate, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.report.blocks import Block, Paragraph, Table

    View = Mapping[str, Any]

LONGEST = 160
"""Characters of evidence that are shown; the document has it whole."""


def told_of(view: View) -> tuple[Block, ...]:
    """What a terminal prints: the table, the failures, and what to take away."""
    head = line(Run(f"{view['model']} on {view['devices']} x {view['cluster']}, {view['program']}", "strong"))
    verdict = [line(Run(view["verdict"], "strong"))] if "verdict" in view else []
    if "dry_run" in view:
        return head, *dry_lines(view), *verdict
    if not view["trials"]:
        return head, *outcome_lines(view), *verdict
    first, *rest = outcome_lines(view)
    return head, trials_table(view), replace(first, above=True), *rest, *verdict


def outcome_lines(view: View) -> Iterator[Paragraph]:
    """How trials failed, what was spent, which is best, and where its files are."""
    if view["truncated_layers"] is not None:
        yield line(Run(f"Steps were measured with {plural(view['truncated_layers'], 'layer')} where a layout allows it and scaled "
                       "by the cost model; intervals hold what that may be wrong by.", "warn"))
    for each in view["trials"]:
        if each["status"] != "ok":
            rank = "" if each["rank"] is None else f" on rank {each['rank']}"
            evidence = each["evidence"] if len(each["evidence"]) <= LONGEST else each["evidence"][:LONGEST] + " ..."
            said = f"{terse(each['label'])}: {each['status']}{rank}: {evidence or 'no word of why'}"
            yield line(Run(said, "warn"), indent=2)
    for each in view["nodes_set_aside"]:
        yield line(Run(f"node {each['node']} was set aside: {each['why'][:LONGEST]}", "warn"), indent=2)
    why = view["stopped"][:1].upper() + view["stopped"][1:]
    yield line(f"{why}; ", figure(view["device_hours"], about), " device-hours spent by this call.")
    if view["finals"] is not None:
        verdict = view["finals"]["verdict"]
        yield line(f"{verdict[0].upper()}{verdict[1:]}.")
    yield best_line(view)
    if view["best"] is not None:
        for path in view["best"]["files"]:
            yield line(path, indent=2, whole=True)
    if "out" in view:
        yield line(f"Rows for calibrate and validate: {view['out']}")
        for label, why in view["left_out"].items():
            yield line(Run(f"  without {terse(label)}: {why}", "warn"))


def dry_lines(view: View) -> Iterator[Paragraph]:
    """What would be run, and what it would cost."""
    price = view["price"]
    yield line(f"Would run {plural(price['trials'], 'trial')} on {view['executor']}: about ", figure(price["device_hours"], about),
               " device-hours, ", figure(price["minutes"], about), " minutes.")
    for each in view["dry_run"]:
        yield line(Run(each["label"], "strong"), above=True)
        for said in each["runs"].splitlines():
            yield line(said, indent=2, whole=True)


def best_line(view: View) -> Paragraph:
    """The best that was measured, beside its prediction."""
    best = view["best"]
    if best is None:
        return line(Run("No trial ended with a measured step.", "strong"))
    predicted = best["predicted_step_s"]
    said = [Run(f"Best: {best['label']}, ", "strong"), figure(best["step_s"], seconds, tone="strong"), Run(" per step", "strong")]
    if predicted is not None:
        said += [Run(" (", "strong"), figure(predicted, seconds, tone="strong"), Run(" predicted)", "strong")]
    return line(*said)


def trials_table(view: View) -> Table:
    """A row a trial, the fastest first."""
    head = ("layout", "status", "predicted", "measured", "80 % interval", "error", "tokens/s/device", "tries")
    groups = ((1, 2, 3, 4, 5), (6, 7))
    rows = [
        (
            terse(each["label"]), each["status"], _seconds(each["predicted_step_s"]), _seconds(each["step_s"]), _interval(each),
            "" if each["error_ratio"] is None else figure(each["error_ratio"], signed, 0), _speed(each), str(each["attempt"]),
        )
        for each in view["trials"]
    ]
    return table(head, rows, right=range(2, len(head)), groups=groups, above=True)


def _seconds(value: float | None) -> str | Run:
    return "" if value is None else figure(value, seconds)


def _interval(each: View) -> Cell:
    if each["interval"] is None:
        return Cell()
    low, high = (figure(end, seconds) for end in each["interval"])
    return cell(low, "-", high)


def _speed(each: View) -> str | Run:
    speed = each["tokens_per_s_per_device"]
    return "" if speed is None or each["status"] != "ok" else figure(speed, rate)
