"""JSON of ``calibration``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.catalog.ceilings import ceilings
from meshwright.evidence.rows.table import count_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.few_shot import FewShot
    from meshwright.domain.calibration import CalibrationTable
    from meshwright.evidence.rows.reading import RowsRead


def calibration_view(table: CalibrationTable, readings: Sequence[RowsRead]) -> dict[str, Any]:
    """The JSON of ``calibrate``: provenance and diagnostics; the file has the rest."""
    return {
        "calibration": f"{table.name}@{table.version}", "provenance": dict(table.provenance),
        "diagnostics": dict(table.diagnostics),
        "runs": sum(len(reading.runs) for reading in readings), "ranking_error_ratio": table.ranking_ratio,
        "skipped": count_reasons([each for reading in readings for each in reading.skipped]),
        "fit_curves": {
            name: {"edge_ratio": curve.usable_bytes(1.0), "width": curve.width, "failures_ratio": curve.failures}
            for name, curve in table.fits.items()
        },
        "ceilings": [
            {"constant": each.constant, "cell": each.cell, "wanted": each.wanted, "maximum": each.maximum}
            for each in ceilings(table)
        ],
    }


def few_shot_view(found: FewShot) -> dict[str, Any]:
    """The further keys of ``calibrate --runs``."""
    following = found.next_run
    return {
        "n": found.n,
        "moved": [
            {"constant": each.constant, "cell": each.cell, "from": each.before, "to": each.after, "change_ratio": each.change_ratio}
            for each in found.moved
        ],
        "interval_ratio_before": found.interval_ratio_before, "interval_ratio_after": found.interval_ratio_after,
        "next_run": None if following is None else {
            "label": following.label, "narrows_ratio": following.narrows_ratio, "candidates": following.candidates,
            "model": following.model, "devices": following.devices,
        },
        "to_measure": [{"id": each.id, "label": each.label, "left_ratio": each.left_ratio} for each in found.to_measure],
        "conflicts": [{"rows": list(each.rows), "why": each.why.words} for each in found.conflicts],
    }
