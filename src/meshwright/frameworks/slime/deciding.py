"""The flags that express a layout: Megatron-LM's, and how slime cuts a step into micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.layout_arguments import decide as decide_flags
from meshwright.frameworks.slime.batch import micro_batches
from meshwright.frameworks.slime.flags import CORE

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

WITHOUT = "--use-distributed-optimizer"
"""What slime sets by itself."""


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The flags of a layout; what is off is absent."""
    found = {key: value for key, value in decide_flags(case, layout, CORE).items() if key != WITHOUT}
    return {**found, **micro_batches(case, layout)}


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as the flags have it."""
    plain = MEGATRON.at(CORE).normal(case, layout)
    return replace(plain, overlap=replace(plain.overlap, tensor=False))
