"""Kernels that a layout chooses, as the implementation that it then is: the attention core, and torch.compile."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.layout import AttentionKernel, Layout
    from meshwright.domain.model import Model

CORE = ("core_attn",)
"""Modules of the rows that stand inside the attention core alone."""


def running(case: Case, layout: Layout) -> Case:
    """The case as a layout runs it: with the kernels that the layout names."""
    return with_kernels(case, compiled=layout.compiled, attention=layout.attention)


def with_kernels(case: Case, *, compiled: bool | None, attention: str | None) -> Case:
    """The case with chosen kernels; itself where nothing is chosen.

    Holds:   choosing again what was chosen changes nothing.
    """
    if compiled is None and attention is None:
        return case
    chosen = case.implementation
    if compiled is not None and compiled != chosen.compiled:
        chosen = _compiled(chosen)
    if attention is not None and attention != chosen.attention:
        chosen = _attended(chosen, attention)
    return replace(case, implementation=chosen)


def _compiled(implementation: Implementation) -> Implementation:
    """The implementation with torch.compile the other way round; where nothing is known of that, its rows stay."""
    known = implementation.switched
    rows = {} if known is None else {field.name: getattr(known, field.name) for field in fields(known)}
    return replace(implementation, compiled=not implementation.compiled, switched=None, **rows)


def _attended(implementation: Implementation, kernel: str) -> Implementation:
    """The implementation with another attention core.

    A score matrix is kept and passes through memory (Korthikanti et al. 2022, section 4.1); a fused kernel has no rows inside the
    core. Between fused kernels nothing is known: the rows stay.
    """
    fused = kernel != "math"
    if fused == implementation.flash_attention:
        return replace(implementation, attention=kernel)
    saved, passes = implementation.saved, implementation.passes
    if fused:
        saved = tuple(row for row in saved if row.modules != CORE)
        passes = tuple(row for row in passes if row.modules != CORE)
    else:
        saved, passes = (*saved, *implementation.score_saved), (*passes, *implementation.score_passes)
    return replace(implementation, attention=kernel, flash_attention=fused, saved=saved, passes=passes)


def unpriced(case: Case, layout: Layout) -> tuple[Message, ...]:
    """That nothing is known of a kernel that a layout names, so that time and memory are those of the implementation's own."""
    own, chosen = case.implementation, running(case, layout).implementation
    words = []
    if chosen.compiled != own.compiled and own.switched is None:
        words.append(f"compile={'on' if chosen.compiled else 'off'}")
    if layout.attention is not None and chosen.flash_attention == own.flash_attention and layout.attention != own.kernel:
        words.append(f"attention={layout.attention}")
    template = "{word}: what it changes under {implementation} is not known; time and memory are given as without it"
    return tuple(Message("kernels.unpriced", template, {"word": word, "implementation": own.name}) for word in words)


def own_unsaid(
    case: Case, attentions: tuple[AttentionKernel, ...], *, compiled: bool | None, attention: AttentionKernel | None,
    by_default: AttentionKernel | None = None,
) -> tuple[bool | None, AttentionKernel | None]:
    """Chosen kernels, None where the case has them by itself; ``attentions`` are those that the framework can be told to run,
    ``by_default`` is what its files choose where none is named."""
    own = case.implementation
    kernel = by_default_of(case.model, by_default) or own.kernel or ("" if "fused" in attentions else "flash")
    return None if compiled == own.compiled else compiled, None if attention == kernel else attention


def by_default_of(model: Model | None, by_default: AttentionKernel | None) -> AttentionKernel | None:
    """What files choose where no kernel is named; flash attention has no sinks, the fused kernel has."""
    return "fused" if by_default == "flash" and model is not None and model.attention.sinks else by_default
