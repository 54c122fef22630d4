"""Low-rank adapters as files say them: a rank, and modules by the names of one dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.training import Lora

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from meshwright.frameworks.compose import Values

HUB_PROJECTIONS = {
    "q_proj": ("query",), "k_proj": ("key",), "v_proj": ("value",), "o_proj": ("output",), "q_a_proj": ("query",),
    "q_b_proj": ("query",), "kv_a_proj_with_mqa": ("key", "value"), "kv_b_proj": ("key", "value"),
    **dict.fromkeys(("qkv_proj", "query_key_value", "W_pack", "c_attn"), ("query", "key", "value")),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj", "gate_up_proj"), ("mlp",)),
}
"""Module of Hugging Face's models -> the projections that it is."""
EVERYWHERE = frozenset({"all", "all-linear"})
"""Words for all linear layers."""


def targets_of(modules: Iterable[str], projections: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The projections that modules are, in the order of ``Lora``; none where no module is known."""
    named = {target for module in modules for target in projections.get(module, ())}
    return tuple(target for target in Lora().targets if target in named)


def adapters_of(
    values: Values, key: str, rank: int | None, modules: Collection[str], projections: Mapping[str, Collection[str]]
) -> Lora | None:
    """Adapters as files say them, on all projections where no ``modules`` are said; None without a rank.

    Errors:  a message where none of the modules, as ``key`` says them, is known: adapters on all are read then.
    """
    if rank is None or rank < 1:
        return None
    targets, told = targets_of(modules, projections), values.source.value(key)
    if told is not None and not targets and not EVERYWHERE.intersection(modules):  # a pattern, or no name at all
        values.refuse("import.adapters", "{key} is {value}: none of {known} is among it, and adapters on all are read",
                      key=key, value=told, known=", ".join(projections))
    return Lora(rank=rank, targets=targets or Lora().targets)


def is_everywhere(lora: Lora) -> bool:
    """Whether all projections carry adapters."""
    return set(lora.targets) == set(Lora().targets)
