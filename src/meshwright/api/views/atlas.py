"""An atlas as JSON: cells, lines of linearity and differences; and its cells as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.cells.cell import BATCH, DEGREES
from meshwright.api.views.estimates import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.cells.cell import Cell
    from meshwright.api.cells.difference import Difference

COLUMNS = (
    "series", "model", "device", "devices", "nodes", "source", "grade", "label", *DEGREES, "step_s", "step_low_s", "step_high_s",
    "tokens_per_s_per_device", "mfu_ratio", "memory_peak_bytes", "memory_reserved_bytes", "memory_capacity_bytes", "missing_bytes",
    "fit_probability", "linearity_ratio", "linearity_baseline_devices", *BATCH, "run", "ran",
    "failed", "why",
)
COMPARED = (
    "verdict", "predicted_label", "predicted_step_s", "predicted_low_s", "predicted_high_s", "measured_label", "measured_step_s",
    "measured_layout_step_s", "measured_layout_fits",
    "measured_layout_fit_probability", "holds", "tried_step_s", "tried_failed", "regret_ratio", "changes",
)
"""What the CSV of a difference has beside the columns of its predicted cells."""


def atlas_view(
    request: Mapping[str, Any], cells: Sequence[Cell], differences: Sequence[Difference] | None, *, missing: int, interrupted: bool,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The document of ``atlas --json``. ``missing``: cells that were not come to."""
    view: dict[str, Any] = {
        "request": plain(request),
        "cells": [cell_view(each) for each in cells],
        "linearity": lines_of(cells),
        "coarse": sum(each.grade == "coarse" for each in cells),
        "refined": sum(each.grade == "refined" for each in cells),
        "missing": missing,
        "complete": not interrupted and not missing,
        "notes": list(notes),
    }
    if differences is not None:
        view["differences"] = [_compared(each) for each in differences]
    return view


def cell_view(cell: Cell) -> dict[str, Any]:
    """A cell by the contract's keys; ``nodes`` is null for a part of a node."""
    view: dict[str, Any] = plain(cell.to_json())
    nodes, left = divmod(cell.devices, cell.devices_per_node)
    batch = view.pop("batch") or {}
    shared = {name: batch.get(name) for name in BATCH}
    return {**view, "nodes": None if left else nodes, **shared}


def lines_of(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For each row of the atlas and source, its points by number of devices, against the fewest whole nodes of the row itself.

    A cell's own ``linearity_ratio`` is that of ``plan``, whose baseline no pin changes; of measured cells both are one.
    """
    lines: dict[tuple[str, str, str], list[Cell]] = {}
    for each in cells:
        if each.tokens_per_s_per_device:
            lines.setdefault((each.series, each.device, each.source), []).append(each)
    found = []
    for (series, device, source), own in lines.items():
        points = sorted(own, key=lambda each: each.devices)
        first = next((each for each in points if each.devices % each.devices_per_node == 0), None)
        if first is None:
            continue
        found.append({
            "series": series, "device": device, "source": source, "baseline_devices": first.devices,
            "points": [
                {
                    "devices": each.devices, "tokens_per_s": (each.tokens_per_s_per_device or 0.0) * each.devices,
                    "row_linearity_ratio": (each.tokens_per_s_per_device or 0.0) / (first.tokens_per_s_per_device or 1.0),
                }
                for each in points if each.devices >= first.devices
            ],
        })
    return found


def _compared(each: Difference) -> dict[str, Any]:
    view: dict[str, Any] = plain(asdict(each))
    if each.changes is not None:
        view["changes"] = {word: {"predicted": mine, "measured": theirs} for word, (mine, theirs) in each.changes.items()}
    return view


def csv_of(view: Mapping[str, Any]) -> str:
    """The cells of an atlas as CSV, a line each; differences stand behind the predicted cells that they are of."""
    compared = {(each["series"], each["device"], each["devices"]): each for each in view.get("differences", ())}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*COLUMNS, *(COMPARED if "differences" in view else ())])
    for cell in view["cells"]:
        row = {**cell, **(cell["layout"] or {}), **{name: (cell["run"] or {}).get(name) for name in ("ran", "failed")}}
        row["run"] = (cell["run"] or {}).get("id")
        row["step_low_s"], row["step_high_s"] = cell["interval"]["step_s"] if cell["interval"] else (None, None)
        more: list[str] = []
        if "differences" in view:
            found = compared.get((cell["series"], cell["device"], cell["devices"])) if cell["source"] == "predicted" else None
            more = [_word(_difference_cell(found, name)) for name in COMPARED] if found else [""] * len(COMPARED)
        writer.writerow([*(_word(row.get(name)) for name in COLUMNS), *more])
    return stream.getvalue()


def _difference_cell(found: Mapping[str, Any], name: str) -> Any:
    if name in {"predicted_low_s", "predicted_high_s"}:
        return found["interval_s"][name == "predicted_high_s"] if found["interval_s"] else None
    if name == "changes":
        return " ".join(f"{word}:{each['predicted']}->{each['measured']}" for word, each in (found["changes"] or {}).items())
    return found[name]


def _word(value: object) -> str:
    """A cell of the table; text that a spreadsheet would take for a formula is kept from it by a quote."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.10g}"
    word = str(value)
    return f"'{word}" if word[:1] in {"=", "+", "-", "@", "\t", "\r"} else word
