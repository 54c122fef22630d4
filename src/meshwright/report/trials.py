"""Trials on a terminal: what each came to beside its prediction, how those ended that failed, where the best one's files are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.rehearse import terse
from meshwright.words import about, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    View = Mapping[str, Any]

LONGEST = 160
"""Characters of evidence that are shown; the document has it whole."""


def trials_report(view: View) -> Iterator[RenderableType]:
    """The table, the failures, and what to take away."""
    yield Text(f"{view['model']} on {view['devices']} x {view['cluster']}, {view['program']}", style="bold")
    if "dry_run" in view:
        yield from _dry(view)
        return
    if view["trials"]:
        yield Padding(_table(view), (1, 0, 1, 2))
    if view["truncated_layers"] is not None:
        yield Text(f"Steps were measured with {plural(view['truncated_layers'], 'layer')} where a layout allows it and scaled by "
                   "the cost model; intervals hold what that may be wrong by.", style="yellow")
    for each in view["trials"]:
        if each["status"] != "ok":
            rank = "" if each["rank"] is None else f" on rank {each['rank']}"
            evidence = each["evidence"] if len(each["evidence"]) <= LONGEST else each["evidence"][:LONGEST] + " ..."
            yield Padding(Text(f"{terse(each['label'])}: {each['status']}{rank}: {evidence or 'no word of why'}", style="yellow"),
                          (0, 0, 0, 2))
    for each in view["nodes_set_aside"]:
        yield Padding(Text(f"node {each['node']} was set aside: {each['why'][:LONGEST]}", style="yellow"), (0, 0, 0, 2))
    yield Text(f"{view['stopped'].capitalize()}; {about(view['device_hours'])} device-hours spent by this call.")
    if view["finals"] is not None:
        verdict = view["finals"]["verdict"]
        yield Text(f"{verdict[0].upper()}{verdict[1:]}.")
    yield Text(_best(view), style="bold")
    if view["best"] is not None:
        for path in view["best"]["files"]:
            yield Text(f"  {path}", no_wrap=True)
    if "out" in view:
        yield Text(f"Rows for calibrate and validate: {view['out']}")
        for label, why in view["left_out"].items():
            yield Text(f"  without {terse(label)}: {why}", style="yellow")


def _dry(view: View) -> Iterator[RenderableType]:
    price = view["price"]
    yield Text(f"Would run {plural(price['trials'], 'trial')} on {view['executor']}: about {about(price['device_hours'])} "
               f"device-hours, {about(price['minutes'])} minutes.")
    for each in view["dry_run"]:
        yield Text(f"\n{each['label']}", style="bold")
        for line in each["runs"].splitlines():
            yield Text(f"  {line}", no_wrap=True)


def _best(view: View) -> str:
    best = view["best"]
    if best is None:
        return "No trial ended with a measured step."
    beside = "" if best["predicted_step_s"] is None else f" ({seconds(best['predicted_step_s'])} predicted)"
    return f"Best: {best['label']}, {seconds(best['step_s'])} per step{beside}"


def _table(view: View) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    widest = max((len(word) for each in view["trials"] for word in terse(each["label"]).split()), default=0)
    names = ("layout", "status", "predicted", "measured", "80 % interval", "error", "tokens/s/device", "tries")
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place > 1 else "left", overflow="fold", min_width=None if place else widest)
    for each in view["trials"]:
        interval = "" if each["interval"] is None else "-".join(seconds(end) for end in each["interval"])
        error = "" if each["error_ratio"] is None else f"{100 * each['error_ratio']:+z.0f} %"
        rate = each["tokens_per_s_per_device"]
        speed = "" if rate is None or each["status"] != "ok" else f"{rate:,.0f}"
        table.add_row(
            terse(each["label"]), each["status"], "" if each["predicted_step_s"] is None else seconds(each["predicted_step_s"]),
            "" if each["step_s"] is None else seconds(each["step_s"]), interval, error, speed, str(each["attempt"]),
        )
    return table
