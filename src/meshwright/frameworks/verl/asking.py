"""What the checks of verl's files ask of a reading: numbers under verl's defaults, switches, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.verl.keys import ACTOR, DP, MCORE, REFERENCE, ROLLOUT, Places
from meshwright.frameworks.verl.reading import DEFAULTS
from meshwright.frameworks.verl.sources import engine_of, is_sft, lost

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.frameworks.settings import Reading

PROMPTS, MINI, RESPONSES = "data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size", f"{ROLLOUT}.n"
MICRO, DEPRECATED = f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.ppo_micro_batch_size"
CAP, DYNAMIC = f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ACTOR}.use_dynamic_bsz"


class Asked(Struct, frozen=True):
    """A reading of one of the back ends."""

    reading: Reading
    section: str

    @property
    def is_rl(self) -> bool:
        """Whether the files are of ``main_ppo``."""
        return not is_sft(self.reading.source)

    @property
    def is_its_own(self) -> bool:
        """Whether the files choose this engine, or none, and say what it does."""
        own = MCORE if self.is_megatron else DP
        return engine_of(self.reading.source) in {"", own} and not lost(self.reading.source)

    @property
    def is_megatron(self) -> bool:
        """Whether the back end is Megatron's."""
        return self.section == MCORE

    @property
    def engine(self) -> str:
        """Section of the engine."""
        return Places(self.section if self.is_rl else "").engine

    @property
    def dynamic(self) -> bool | None:
        """Whether the actor packs its micro-batches; None where only the run knows."""
        value = self.reading.source.value(DYNAMIC, False)
        return None if value is UNKNOWN else value is True

    def count(self, key: str, default: int | None = None) -> int | None:
        """A whole number of the files, or verl's default; None where it is something else."""
        value = self.reading.source.value(key)
        if value is None:
            return DEFAULTS.get(key) if default is None else default
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else None

    def setting(self, *keys: str) -> Setting | None:
        """The first of some keys that stands there."""
        return next((found for key in keys if (found := self.reading.source.settings.get(key)) is not None), None)

    @property
    def prompts(self) -> int | None:
        """Prompts of a step of RL: 1024 where nothing is said."""
        return self.count(PROMPTS, 1024)

    @property
    def world(self) -> int | None:
        """GPUs."""
        return self.reading.said.devices

    @property
    def degrees(self) -> tuple[int, int, int]:
        """tp, pp and cp, or 1, 1 and Ulysses; 1 where they are not known."""
        if not self.is_megatron:
            names = (f"{ACTOR}.ulysses_sequence_parallel_size", f"{self.engine}.ulysses_sequence_parallel_size")
            return 1, 1, max((self.count(name, 1) or 1) for name in (names if self.is_rl else names[1:]))
        found = (self.count(f"{self.engine}.{name}_parallel_size", 1) for name in ("tensor_model", "pipeline_model", "context"))
        tp, pp, cp = (count or 1 for count in found)
        return tp, pp, cp

    @property
    def replicas(self) -> int | None:
        """Data-parallel ranks, where the degrees divide the GPUs."""
        tp, pp, cp = self.degrees
        return self.world // (tp * pp * cp) if self.world and self.world % (tp * pp * cp) == 0 else None

    @property
    def has_reference(self) -> bool:
        """Whether a reference policy runs, which an actor with adapters is itself."""
        keys = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
        rank = self.reading.source.value("actor_rollout_ref.model.lora_rank")
        return any(self.reading.source.value(key) is True for key in keys) and not (isinstance(rank, int) and rank > 0)

    @property
    def longest(self) -> int | None:
        """Tokens of the longest prompt and response."""
        return self.reading.said.sequence_tokens


PASSES = {
    f"{ROLLOUT}.log_prob": "the old log-probabilities", f"{REFERENCE}.log_prob": "the reference",
}
"""Keys of forward passes begin so."""
