"""JSON of ``decomposition``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number

if TYPE_CHECKING:


    from meshwright.search.balance.decompose import Decomposition
    from meshwright.search.balance.probes import ProbeProposal


def decomposition_view(found: Decomposition) -> dict[str, Any]:
    """The JSON of a decomposition."""
    return {
        "components": [
            {
                "name": each.name, "value_mb": number(each.value_mb), "standard_error_mb": number(each.standard_error_mb),
                "interval_mb": None if each.interval_mb is None else [number(end) for end in each.interval_mb],
                "sensitivity": number(each.sensitivity),
            }
            for each in found.components
        ],
        "residuals": [
            {"stage": each.peak.stage, "round": each.peak.round, "peak_mb": number(each.peak.peak_mb),
             "residual_mb": number(each.residual_mb), "judged": each.judged}
            for each in found.residuals
        ],
        "rms_mb": number(found.rms_mb), "max_residual_mb": number(found.max_residual_mb), "margin_mb": number(found.margin_mb),
        "condition": number(found.condition), "exact": found.exact,
    }


def guide_view(proposal: ProbeProposal) -> dict[str, Any]:
    """The JSON of the dry runs to make."""
    return {
        "rounds": [
            {
                "offset": list(each.offset), "recompute": list(each.recompute), "select_recompute": list(each.select_recompute),
                "select_comm_recompute": list(each.select_comm_recompute), "stages": list(each.stages),
                "layers": [sum(counts) for counts in zip(*each.treated, strict=True)],
            }
            for each in proposal.rounds
        ],
        "treatments": list(proposal.treatments), "unknowns": list(proposal.unknowns), "equations": proposal.equations,
        "condition": number(proposal.condition), "missing": [str(each) for each in proposal.missing],
    }
