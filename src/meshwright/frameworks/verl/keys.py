"""Where verl's two trainers keep what a layout says: the policy of ``main_ppo``, and the engine of ``sft_trainer``.

Source: docs/sources.md#verl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.frameworks.verl.batch import cap_for, longest_tokens

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values

ACTOR, ROLLOUT, REFERENCE = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
MCORE = "megatron"
"""verl's word for its engine on Megatron-Core, as ``model_engine`` has it."""
DP = "dp"
"""Its word for FSDP."""
SFT_PROGRAM = "verl.trainer.sft_trainer"
RL_PROGRAM = "verl.trainer.main_ppo"


class Places(Struct, frozen=True):
    """The sections and keys of one of the trainers."""

    section: str
    """Of RL the name of the engine's section below the actor; empty for SFT, where it is ``engine``."""

    @property
    def engine(self) -> str:
        """Section of the training engine."""
        return f"{ACTOR}.{self.section}" if self.section else "engine"

    @property
    def optimizer(self) -> str:
        """Section of the optimizer."""
        return f"{ACTOR}.optim" if self.section else "optim"

    @property
    def model(self) -> str:
        """Section of the model."""
        return "actor_rollout_ref.model" if self.section else "model"

    @property
    def dynamic(self) -> str:
        """Whether micro-batches are packed under a cap."""
        return f"{ACTOR}.use_dynamic_bsz" if self.section else "data.use_dynamic_bsz"

    @property
    def microbatch(self) -> str:
        """Samples of a micro-batch, where they are not."""
        return f"{ACTOR}.ppo_micro_batch_size_per_gpu" if self.section else "data.micro_batch_size_per_gpu"

    @property
    def cap(self) -> str:
        """Tokens of a GPU in a micro-batch, where they are."""
        return f"{ACTOR}.ppo_max_token_len_per_gpu" if self.section else "data.max_token_len_per_gpu"


def is_tuning(case: Case) -> bool:
    """Whether the SFT trainer is meant; everything else that trains all weights is reinforcement learning here."""
    return case.training.task == "sft"


def micro_batches(case: Case, layout: Layout, places: Places) -> Values:
    """The micro-batch in both ways to say it: a count of samples, which nothing exceeds, and the cap that a switch turns on.

    Packs are formed where the lengths are known: verl's differencing only aims at the cap, and no plan of full sequences gains.
    """
    cap = cap_for(layout.microbatch_sequences, case.batch.sequence_tokens, layout.context_parallel)
    packed = case.batch.packing is not None
    return {places.dynamic: packed, places.microbatch: layout.microbatch_sequences, places.cap: max(cap, _least(case, layout))}


def _least(case: Case, layout: Layout) -> int:
    """A cap below which verl stops at the longest sample."""
    return cap_for(1, longest_tokens(case), layout.context_parallel)
