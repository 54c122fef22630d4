"""The settings of ms-swift that express a layout, and the layout as those settings have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.kernels import by_default_of
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.layout_arguments import CONTEXT_TYPES
from meshwright.frameworks.megatron.layout_arguments import decide as decide_flags
from meshwright.frameworks.megatron.precision_arguments import BACKENDS
from meshwright.frameworks.ms_swift_megatron.names import CORE, OWN_ATTENTION, SWITCHED_OFF, name_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

UNSPOKEN = (
    "context: the kind of context parallelism where there is none (cp1)",
    "overlap: that of point-to-point messages without virtual stages, and of collectives over one rank",
    "stage_layers: an even split is not written",
    "etp and ep: of a model without experts",
    "attention: flash is what is taken where no kernel is named",
)
_WITHOUT = frozenset({"--ckpt-format", "--init-model-with-meta-device", "--overlap-cpu-optimizer-d2h-h2d"})
"""Flags of Megatron-LM that ms-swift has no name for and that change no layout."""
_TOLD = {"recompute_granularity": "none", "use_distributed_optimizer": False}
"""What has to be said where Megatron-LM is silent: the default is another."""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """Megatron-LM's flags under ms-swift's names; what its defaults would change is said."""
    off = {flag: name for name, flag in SWITCHED_OFF.items()}
    found: dict[str, object] = dict(_TOLD)
    for flag, value in decide_flags(case, layout, CORE).items():
        if flag in off:
            found[off[flag]] = False
        elif flag not in _WITHOUT:
            found[name_of(flag)] = value
    if found.get("cp_comm_type") == CONTEXT_TYPES["ring"]:
        del found["cp_comm_type"]  # mcore-bridge's own
    if "recompute_modules" in found and isinstance(found["recompute_modules"], str):
        found["recompute_modules"] = (found["recompute_modules"],)
    found["attention_backend"] = _backend(case, layout)
    return found


def _backend(case: Case, layout: Layout) -> str:
    """The attention kernel; flash has no sinks."""
    if layout.attention is not None:
        return BACKENDS[layout.attention]
    return BACKENDS[by_default_of(case.model, OWN_ATTENTION) or ""]


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as the settings have it."""
    plain = MEGATRON.at(CORE).normal(case, layout)
    own = by_default_of(case.model, OWN_ATTENTION)
    return replace(
        plain, attention=None if layout.attention == own else layout.attention, overlap=replace(plain.overlap, expert=False),
    )
