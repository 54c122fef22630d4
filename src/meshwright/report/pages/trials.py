"""What the pages of ``sweep`` and ``tune`` share: trials measured beside their predictions, failures, the best one's files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Block, Section, Tile, Tiles, View, line
from meshwright.report.page.drawn import Ranged
from meshwright.report.page.plots import plot
from meshwright.report.pages.common import page
from meshwright.report.pages.layouts import strip
from meshwright.report.rehearse import terse
from meshwright.report.trials import dry_lines, outcome_lines, told_of, trials_table
from meshwright.words import about, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATUSES = {"oom": "out of memory", "user": "failed by itself", "nccl": "network failed", "parse": "no step in its log"}
"""How a trial ended that has no step, in words."""
MOST = 60
"""Trials that are drawn, the fastest first; the table has all."""


def ended(each: Mapping[str, Any]) -> str:
    """The step of a trial, or how it ended."""
    if each["status"] == "ok" and each["step_s"] is not None:
        return seconds(each["step_s"])
    status = str(each["status"])
    return STATUSES.get(status, status)


def trials_page(verb: str, view: Mapping[str, Any], ok: bool) -> View:
    """The page of trials."""
    best = view["best"]
    dry = "dry_run" in view
    found = "No trial ended with a measured step" if best is None else f"Best measured: {seconds(best['step_s'])} a step"
    title = "What would be run" if dry else found
    step = f"{view['global_batch_sequences']:,} x {view['sequence_tokens']:,} tokens a step"
    return page(
        verb, title, subtitle=f"{view['model']} on {view['devices']} x {view['cluster']}, {step}, {view['program']}",
        verdict="" if dry else "good" if ok else "bad", told=told_of(view),
        first=(
            *([] if best is None else [strip(best["label"])]), _tiles(view, best),
            *([line(view["verdict"])] if "verdict" in view else []),
        ),
        sections=(_beside(view), Section(title="Trials", blocks=tuple(_trials(view)))),
    )


def _trials(view: Mapping[str, Any]) -> Iterator[Block]:
    """What was run or would be, and what went wrong with a trial as an item of a list."""
    if "dry_run" in view:
        yield from dry_lines(view)
        return
    if view["trials"]:
        yield trials_table(view)
    for each in outcome_lines(view):
        yield replace(each, kind="item") if all(run.tone == "warn" for run in each.words) else each


def _tiles(view: Mapping[str, Any], best: Mapping[str, Any] | None) -> Tiles:
    tiles = []
    if best is not None:
        predicted = best["predicted_step_s"]
        tiles.append(Tile(name="step, measured", value=seconds(best["step_s"]),
                          remark="" if predicted is None else f"predicted {seconds(predicted)}"))
        if best["tokens_per_s_per_device"] is not None:
            tiles.append(Tile(name="tokens/s/device", value=rate(best["tokens_per_s_per_device"])))
    good = sum(each["status"] == "ok" for each in view["trials"])
    price = view["price"]
    tiles.append(Tile(name="trials", value=str(len(view["trials"]) or price["trials"]),
                      remark=f"{good} measured" if view["trials"] else "would be run"))
    hours = view["device_hours"] or price["device_hours"]
    tiles.append(Tile(name="device-hours", value=about(hours), remark="spent" if view["device_hours"] else "expected"))
    return Tiles(tiles=tuple(tiles))


def _beside(view: Mapping[str, Any]) -> Section | None:
    """Predicted and measured on one scale."""
    rows = [
        Ranged(name=terse(each["label"]), value=each["step_s"], ends=tuple(each["interval"]) if each["interval"] else None,
               other=each["predicted_step_s"], bad=each["status"] != "ok",
               word=ended(each))
        for each in view["trials"][:MOST]
        if each["step_s"] is not None or each["predicted_step_s"] is not None
    ]
    if not rows:
        rows = [
            Ranged(name=terse(each["label"]), value=None, other=each["predicted_step_s"], word=seconds(each["predicted_step_s"]))
            for each in view["planned"][:MOST] if each["predicted_step_s"] is not None
        ]
    if not rows:
        return None
    chart = plot("ranges", rows=rows, title="Predicted and measured steps", words="seconds", label="step",
                 of="measured, 80 % interval", other="predicted", caption="Rings are predictions, dots the measured medians.")
    return Section(title="Predicted against measured", blocks=(chart,))
