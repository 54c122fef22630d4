"""What Megatron-LM refuses of hybrids with Mamba-2, and what it takes of them and does not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full
from meshwright.domain.mixers import Mamba2
from meshwright.frameworks.megatron.flags import OLDEST, RELEASES
from meshwright.frameworks.megatron.hybrid import EXPERTS, PIPES, RECOMPUTES, is_hybrid, letters_of_a_layer
from meshwright.frameworks.megatron.pipeline import is_even, only_ends_differ, split_of
from meshwright.frameworks.rules import Rule, values_if

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned


def _before(minor: int) -> tuple[str, ...]:
    """The releases before a minor version."""
    return RELEASES[: minor - OLDEST]


def _mixer(plan: Planned) -> Mamba2 | None:
    return next((each for each in plan.case.model.mixers if isinstance(each, Mamba2)), None)


def _heads(plan: Planned) -> Values | None:
    """Tensor ranks cut heads, context ranks cut what is left of them."""
    mixer, ranks = _mixer(plan), plan.tp * plan.cp
    return values_if(mixer is not None and mixer.num_heads % ranks, mamba_heads=mixer.num_heads if mixer else 0, ranks=ranks)


def _groups(plan: Planned) -> Values | None:
    """Tensor ranks cut groups and never copy them."""
    mixer = _mixer(plan)
    return values_if(mixer is not None and mixer.num_groups % plan.tp, mamba_groups=mixer.num_groups if mixer else 0)


def _context_groups(plan: Planned) -> Values | None:
    """Context ranks cut the groups of a tensor rank, or copy them."""
    mixer = _mixer(plan)
    if mixer is None or plan.cp == 1 or mixer.num_groups % plan.tp:
        return None
    local = mixer.num_groups // plan.tp
    return values_if(local % plan.cp and plan.cp % local, local=local)


def _fp8(plan: Planned) -> Values | None:
    """Columns of the projection in, of which FP8 takes 16 at once."""
    mixer = _mixer(plan)
    if mixer is None or not plan.precision.startswith("fp8"):
        return None
    columns = 2 * mixer.value_width + 2 * mixer.num_groups * mixer.state_dim + mixer.num_heads
    return values_if(columns % 16, columns=columns)


def _split(plan: Planned) -> Values | None:
    """Before patterns have stages, they are alike (0.15 and earlier), or alike but for the first and the last."""
    if not is_hybrid(plan.case.model) or plan.pp == 1:
        return None
    split = split_of(plan.case, plan.layout)
    free = plan.release == "0.16" and only_ends_differ(split) and letters_of_a_layer(plan.case.model) is not None
    return values_if(not is_even(split) and not free)


def _recompute(plan: Planned) -> bool:
    recompute = plan.layout.recompute
    return is_hybrid(plan.case.model) and isinstance(recompute, Full) and recompute.layers != 0


def _block_recompute(plan: Planned) -> bool:
    recompute = plan.layout.recompute
    return isinstance(recompute, Full) and recompute.layers not in {None, 0} and letters_of_a_layer(plan.case.model) is None


HYBRIDS = (
    Rule("mamba-heads", "nheads must be evenly divisible by tp_size * cp_size, but {ranks} ranks do not divide {mamba_heads} heads",
         _heads, "start"),
    Rule("mamba-groups", "ngroups must be evenly divisible by tp_size, but {tp} ranks do not divide {mamba_groups} groups",
         _groups, "start"),
    Rule("mamba-context", "cp_size must be evenly divisible by ngroups/tp_size, or divide it: {cp} ranks, {local} groups",
         _context_groups, "start"),
    Rule("mamba-fp8", "For FP8, the innermost dimension of the Mamba layer input projection output tensor must be a multiple of "
         "16, not {columns}.", _fp8, "start"),
    Rule("hybrid-block", "a count of layers to recompute is one of blocks, and layers of this hybrid have one or two",
         _block_recompute, "never"),
    Rule("hybrid-expert-overlap", "a hybrid has no schedule that runs the expert all-to-all beside compute "
         "(build_schedule_plan)", lambda plan: is_hybrid(plan.case.model) and plan.layout.overlap.expert and plan.ep > 1, "step"),
)
"""Rules of hybrids, in the order in which they are reported."""
OLD_HYBRIDS = (
    Rule("hybrid-experts", "In hybrid override pattern, 'E' is not one of M, * and - (core 0.16 has it)",
         lambda plan: is_hybrid(plan.case.model) and plan.moe, "start", "model", _before(EXPERTS)),
    Rule("hybrid-mtp", "The pattern of a hybrid has no layers that predict further tokens: the flag is read and nothing is built "
         "(core 0.17 has them)", lambda plan: is_hybrid(plan.case.model) and plan.case.model.num_mtp_layers, "never", "model",
         _before(PIPES)),
    Rule("hybrid-virtual", "The Mamba hybrid model does not currently support virtual/interleaved pipeline parallelism",
         lambda plan: is_hybrid(plan.case.model) and plan.vp > 1, "start", releases=_before(PIPES)),
    Rule("hybrid-split", "stages of a hybrid are alike (in core 0.16 but for the first and the last, from 0.17 on its pattern "
         "says them)", _split, "never", releases=_before(PIPES)),
    Rule("hybrid-recompute", "the stack of a hybrid reads no full recomputation before core 0.18: the flags are taken and nothing "
         "is recomputed", _recompute, "never", releases=_before(RECOMPUTES)),
)
"""Rules of hybrids that later versions do not have."""
