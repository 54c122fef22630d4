"""Low-rank adapters in the words of Hugging Face's modules, and what two dialects of them mean for a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.training import Lora

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

HUB_PROJECTIONS = {
    "q_proj": ("query",), "k_proj": ("key",), "v_proj": ("value",), "o_proj": ("output",), "q_a_proj": ("query",),
    "q_b_proj": ("query",), "kv_a_proj_with_mqa": ("key", "value"), "kv_b_proj": ("key", "value"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), ("mlp",)),
}
"""Module of Hugging Face's models -> the projections that it is."""
EVERYWHERE = frozenset({"all", "all-linear"})
"""Words for all linear layers."""


def adapters_of(rank: int | None, modules: Iterable[str], projections: Mapping[str, Collection[str]]) -> Lora | None:
    """Adapters as files say them; None without a rank. Modules of no known name are read as all of them."""
    if rank is None or rank < 1:
        return None
    named = {target for module in modules for target in projections.get(module, ())}
    every = Lora().targets
    return Lora(rank=rank, targets=tuple(target for target in every if target in named) or every)


def is_everywhere(lora: Lora) -> bool:
    """Whether all projections carry adapters."""
    return set(lora.targets) == set(Lora().targets)
