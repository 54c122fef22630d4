"""Which communication runs beside compute at a risk level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Risk

DEFAULT_RISK: Risk = "exact"
"""Overlap and fusion that may change sums stay off until convergence is confirmed (guide 001:43)."""


def overlap_for(case: Case, risk: Risk = DEFAULT_RISK, words: Sequence[str] | None = None) -> Overlap:
    """Communication that may run beside compute at a risk level, as far as the implementation can.

    ``exact``: what changes no arithmetic (gradients, parameters, point-to-point). ``equivalent`` adds tiled tensor-parallel and
    expert collectives, whose sums may be taken in another order. ``words``: those of
    ``overlap=`` that the framework has. A label that does not name its overlap means the default's.
    """
    more, implementation = risk != "exact", case.implementation
    able = {"grad", "param", "tp", "p2p", "ep"} if words is None else set(words)
    return Overlap(
        gradient_reduce=implementation.gradient_overlap and "grad" in able,
        parameter_gather=implementation.parameter_overlap and "param" in able,
        point_to_point=implementation.point_to_point_overlap and "p2p" in able,
        tensor=more and "tp" in able,
        expert=more and "ep" in able,
    )
