"""What the checks of NeMo-RL's files ask of a reading: numbers, switches, ranks; None where nobody says or only the run knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.nemo_rl.keys import (
    COLOCATED,
    DTENSOR,
    DYNAMIC,
    GENERATING,
    MEGATRON,
    NODES,
    PACKING,
    PER_NODE,
)
from meshwright.frameworks.nemo_rl.sources import algorithm_of, enabled, missing_bases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.rules import Finder
    from meshwright.frameworks.settings import Reading


class Asked(Struct, frozen=True):
    """A reading of one of the back ends."""

    reading: Reading
    section: str

    def value(self, key: str) -> object:
        """What stands there; None where nothing does, or only the run knows."""
        value = self.reading.source.value(key)
        return None if value is UNKNOWN else value

    def is_on(self, key: str) -> bool:
        """Whether a switch stands on."""
        return self.value(key) is True

    def count(self, key: str, default: int | None = None) -> int | None:
        """A whole number from 1 on; the default where the key is absent, None where it is anything else."""
        setting = self.reading.source.settings.get(key)
        value = default if setting is None or setting.value is None else setting.value
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else None

    def setting(self, *keys: str) -> Setting | None:
        """The first of some keys that stands there."""
        return next((found for key in keys if (found := self.reading.source.settings.get(key)) is not None), None)

    def lacks(self, key: str) -> bool:
        """Whether a key stands nowhere, and no file is missing where it could."""
        return key not in self.reading.source.settings and not missing_bases(self.reading.source)

    @property
    def is_its_own(self) -> bool:
        """Whether the files run this back end, or leave open which."""
        return enabled(self.reading.source) in {(), (self.section,)}

    @property
    def is_megatron(self) -> bool:
        """Whether the back end is Megatron's."""
        return self.section == MEGATRON

    @property
    def algorithm(self) -> str:
        """``grpo``, ``sft`` ..."""
        return algorithm_of(self.reading.source)

    @property
    def generates(self) -> bool:
        """Whether samples are made in each step."""
        return self.algorithm in GENERATING

    @property
    def samples(self) -> int | None:
        """Samples that a step makes: prompts times generations."""
        prompts, each = (self.count(f"{self.algorithm}.{name}") for name in ("num_prompts_per_step", "num_generations_per_prompt"))
        return prompts * each if self.generates and prompts and each else None

    @property
    def degrees(self) -> tuple[int | None, int | None, int | None]:
        """tp, pp and cp."""
        if not self.is_megatron:
            return self.count(f"{DTENSOR}.tensor_parallel_size"), 1, self.count(f"{DTENSOR}.context_parallel_size")
        found = (self.count(f"{MEGATRON}.{name}_parallel_size") for name in ("tensor_model", "pipeline_model", "context"))
        tp, pp, cp = found
        return tp, pp, cp

    @property
    def degree_keys(self) -> tuple[str, ...]:
        """Where they stand."""
        names = ("tensor_model", "pipeline_model", "context") if self.is_megatron else ("tensor", "context")
        return tuple(f"{self.section}.{name}_parallel_size" for name in names)

    @property
    def replica(self) -> int | None:
        """Devices of a replica."""
        tp, pp, cp = self.degrees
        return tp * pp * cp if tp and pp and cp else None

    @property
    def world(self) -> int | None:
        """Devices of the trainer."""
        return self.reading.said.devices

    @property
    def replicas(self) -> int | None:
        """Data-parallel ranks, where the degrees divide the devices."""
        size = self.replica
        return self.world // size if self.world and size and self.world % size == 0 else None

    @property
    def packs(self) -> bool:
        """Whether sequences are laid behind each other."""
        return self.is_on(f"{PACKING}.enabled")

    @property
    def sorts(self) -> bool:
        """Whether micro-batches of samples are formed by their tokens."""
        return self.is_on(f"{DYNAMIC}.enabled")

    @property
    def is_separate(self) -> bool:
        """Whether the engine has devices of its own."""
        return self.generates and self.value(f"{COLOCATED}.enabled") is False

    @property
    def cluster(self) -> tuple[int | None, int | None]:
        """Nodes, and devices of one."""
        return self.count(NODES), self.count(PER_NODE)

    @property
    def engine_devices(self) -> int | None:
        """Devices of the engine."""
        nodes, each = self.cluster
        if not self.is_separate:
            return nodes * each if nodes and each else None
        there = f"{COLOCATED}.resources"
        own, own_nodes = self.count(f"{there}.gpus_per_node"), self.count(f"{there}.num_nodes", 1)
        return own * own_nodes if own and own_nodes else None


def asks(section: str, find: Callable[[Asked], Iterator[Values]], *, back_ends: tuple[str, ...] = (MEGATRON, DTENSOR)) -> Finder:
    """A check that asks a reading of some back ends."""

    def found(reading: Reading, case: Case | None) -> Iterator[Values]:
        asked = Asked(reading, section)
        if section in back_ends and asked.is_its_own:
            yield from find(asked)

    return found
