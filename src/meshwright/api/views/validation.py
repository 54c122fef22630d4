"""The document of ``validate --json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number, plain
from meshwright.evidence.rows.groups import CELL
from meshwright.evidence.rows.table import by_number

if TYPE_CHECKING:
    from meshwright.evidence.score.cells import Cell, Decisions
    from meshwright.evidence.score.summary import Part, Summary
    from meshwright.evidence.score.validation import Tally

Document = dict[str, Any]


def validation_view(validation: Tally, summary: Summary) -> Document:
    """All metrics by the contract's keys, per part, and the rows that were left out with their reasons (``columns.LISTED``)."""
    return {
        "path": validation.path,
        "scheme": validation.scheme,
        "calibration": validation.calibration,
        "folds": validation.folds,
        "rows": len(validation.rows),
        "known_configurations": validation.known_configurations,
        "unknown_columns": list(validation.unknown_columns),
        "skipped": len(validation.skipped),
        "skipped_reasons": by_number(validation.skipped.kinds),
        "skipped_rows": [{"id": each.id, "line": each.line, "reason": each.reason} for each in validation.skipped],
        "all": part_view(summary.total),
        "groups": {name: part_view(part) for name, part in summary.groups.items()},
        "sets": {part.name: part_view(part) for part in summary.sets},
        "devices": {name: part_view(part) for name, part in summary.devices.items()},
        "frameworks": {name: part_view(part) for name, part in summary.frameworks.items()},
        "kinds": {name: part_view(part) for name, part in summary.kinds.items()},
        "cells": [_cell(each) for each in summary.cells],
        "reliability": [plain(asdict(each)) for each in summary.reliability],
    }


def part_view(part: Part) -> Document:
    """Scores, decisions and targets of a part."""
    view: Document = plain(asdict(part.scores))
    if part.decisions is not None:
        view |= _decisions(part.decisions)
    if part.aims:
        view["targets"] = {
            aim.metric: {"below": aim.target.below, "above": aim.target.above, "value": number(aim.value), "met": aim.met}
            for aim in part.aims
        }
    return view


def _decisions(found: Decisions) -> Document:
    return {
        "cells": found.cells,
        "regret_ratio": {"mean": found.regret_mean_ratio, "worst": found.regret_worst_ratio},
        "best_of_3_regret_ratio": {"mean": found.best_of_3_regret_mean_ratio},
        "failed_choices": number(found.failed_choices),
        "failed_choices_explained": found.failed_choices_explained,
        "spearman_within_cells_median": number(found.spearman_within_cells_median),
    }


def _cell(each: Cell) -> Document:
    view: Document = plain(asdict(each))
    view["key"] = dict(zip(("source", *CELL), each.key, strict=True))
    return view
