"""What a schedule is: for each stage, the operations in the order in which it runs them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.perf.schedules.values import Ints

FORWARD = 0
BACKWARD = 1  # gradients of input and weights in one slot
BACKWARD_INPUT = 2  # gradient of the input only
WEIGHT = 3  # gradient of the weights, any time after its BACKWARD_INPUT
KIND_NAMES = ("forward", "backward", "backward_input", "weight")

Operation: TypeAlias = tuple[int, int, int]  # (kind, microbatch, chunk)


class Order(Struct, frozen=True, kw_only=True, eq=False):
    """One schedule, spelled out.

    `operations` are those of all stages, stage by stage, each in the order in which it runs them: [operation][kind, microbatch,
    chunk], read-only; `lengths` says how many each stage has.
    `virtual_stage[stage][chunk]` is the position of the chunk in the model, 0 first.
    `pairs[stage]` holds the indices of forwards that run jointly with the backward that follows
    them: both inputs are awaited, then both outputs are sent (DualPipe).
    """

    name: str
    num_microbatches: int
    virtual_stage: tuple[tuple[int, ...], ...]
    operations: Ints
    lengths: tuple[int, ...]
    pairs: tuple[frozenset[int], ...]

    @classmethod
    def of(
        cls, *, name: str, num_microbatches: int, virtual_stage: tuple[tuple[int, ...], ...],
        stages: Sequence[Sequence[Operation]], pairs: tuple[frozenset[int], ...] | None = None,
    ) -> Order:
        """The order whose stages run these; where no pairs are given none run jointly.

        >>> Order.of(name="x", num_microbatches=1, virtual_stage=((0,),), stages=[[(FORWARD, 0, 0), (BACKWARD, 0, 0)]]).lengths
        (2,)
        """
        lengths = tuple(map(len, stages))
        numbers = chain.from_iterable(chain.from_iterable(stages))
        return cls(
            name=name, num_microbatches=num_microbatches, virtual_stage=virtual_stage, lengths=lengths,
            operations=np.fromiter(numbers, dtype=np.int64, count=3 * sum(lengths)).reshape(-1, 3),
            pairs=pairs if pairs is not None else (frozenset(),) * len(lengths),
        )

    def __post_init__(self) -> None:
        self.operations.flags.writeable = False

    def __hash__(self) -> int:
        """Of what tells most orders apart: their thousands of operations are compared where that is the same."""
        return hash((self.name, self.num_microbatches, self.virtual_stage))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Order):
            return self is other
        own, its = ((each.name, each.num_microbatches, each.virtual_stage, each.lengths, each.pairs) for each in (self, other))
        return own == its and np.array_equal(self.operations, other.operations)

    @property
    def num_stages(self) -> int:
        """Pipeline ranks."""
        return len(self.virtual_stage)

    @property
    def num_chunks(self) -> int:
        """Chunks of the model on each stage."""
        return len(self.virtual_stage[0])

    @property
    def stages(self) -> tuple[tuple[Operation, ...], ...]:
        """The operations of each stage, for those who read them one by one."""
        return tuple(self.stage(number) for number in range(len(self.lengths)))

    def stage(self, number: int) -> tuple[Operation, ...]:
        """The operations of a stage."""
        begin = sum(self.lengths[:number])
        return tuple((kind, m, chunk) for kind, m, chunk in self.operations[begin : begin + self.lengths[number]].tolist())

    def virtual_stage_table(self) -> Ints:
        """Positions in the model, as an array [num_stages][num_chunks]."""
        return np.array(self.virtual_stage, dtype=np.int64)


def loop_placement(num_stages: int, num_chunks: int) -> tuple[tuple[int, ...], ...]:
    """Chunk c of stage i is number c P + i of the model (Megatron's virtual pipeline).

    Shapes:  scalars -> a table [num_stages][num_chunks].
    Units:   counts.
    Holds:   num_stages >= 1, num_chunks >= 1.
    Source:  Narayanan et al. 2021, arXiv 2104.04473, section 2.2.

    >>> loop_placement(2, 2)
    ((0, 2), (1, 3))
    """
    return tuple(tuple(chunk * num_stages + stage for chunk in range(num_chunks)) for stage in range(num_stages))


def v_placement(num_stages: int) -> tuple[tuple[int, ...], ...]:
    """Stage i holds number i and number 2 P - 1 - i of the model: down, then back up.

    Shapes:  scalar -> a table [num_stages][2].
    Units:   counts.
    Holds:   num_stages >= 1.
    Source:  github.com/deepseek-ai/DualPipe, dualpipe/dualpipev.py.

    >>> v_placement(2)
    ((0, 3), (1, 2))
    """
    return tuple((stage, 2 * num_stages - 1 - stage) for stage in range(num_stages))


def require_counts(num_stages: int, num_microbatches: int, num_chunks: int = 1) -> None:
    """Refuse counts below one, naming them.

    Shapes:  scalars.
    Units:   counts.
    Holds:   always; raises ValueError.
    Source:  none, a check of the caller's input.
    """
    if min(num_stages, num_microbatches, num_chunks) < 1:
        raise ValueError(
            "`num_stages`, `num_microbatches` and `num_chunks` must be at least 1, "
            f"but got ({num_stages=}, {num_microbatches=}, {num_chunks=})."
        )
