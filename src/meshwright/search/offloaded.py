"""Optimizer states in host memory, where nothing fits without: what is searched then, for whoever asks what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.search.finding import find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.search.finding import Found
    from meshwright.search.result import SearchOptions
    from meshwright.search.runner import Runner

    Progress = Callable[[int, int], None]

OFFLOAD = {"offload": "optimizer"}
"""The pin under which all layouts keep them there."""


def host_short_bytes(case: Case, each: Estimate) -> float:
    """What a node lacks of host memory for what a layout keeps there, however checkpoints are written; nought for no offload.

    Units:   bytes.
    """
    parts = each.host_memory_bytes
    return max(0.0, parts.needed_bytes - case.cluster.host_memory_bytes) if each.layout.offload and parts is not None else 0.0


def may_move(features: Features, pins: Mapping[str, str]) -> bool:
    """Whether optimizer states may go to host memory where nothing fits without: the framework has that, and no pin decides it."""
    return features.optimizer_offload and "offload" not in pins


def find_moved(
    case: Case, features: Features, options: SearchOptions, runner: Runner, progress: Progress | None = None
) -> tuple[SearchOptions, Found] | None:
    """What is found with optimizer states in host memory, where they may go there, and devices and nodes hold the first."""
    if not may_move(features, options.pins):
        return None
    moved = replace(options, pins={**options.pins, **OFFLOAD})
    found = find(case, features, moved, runner, progress, able=True)
    held = found.plans and not host_short_bytes(case, found.plans[0].estimate)
    return (moved, found) if held else None


def first_of(case: Case, features: Features, options: SearchOptions, runner: Runner) -> Estimate | None:
    """What ``plan`` lists first, its linearity left out; None where it lists nothing that the framework runs.

    Holds:   states move to host memory as in ``plan``: where nothing fits, not where the framework refuses what fits.
    """
    found = find(case, features, options, runner, able=True)
    if found.plans or found.refused or not found.counts.legal:
        return found.plans[0].estimate if found.plans else None
    moved = find_moved(case, features, options, runner)
    return moved[1].plans[0].estimate if moved is not None else None
