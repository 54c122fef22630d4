"""What a schedule is: for each stage, the operations in the order in which it runs them."""

from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from meshwright.perf.schedules.values import Ints

FORWARD = 0
BACKWARD = 1  # gradients of input and weights in one slot
BACKWARD_INPUT = 2  # gradient of the input only
WEIGHT = 3  # gradient of the weights, any time after its BACKWARD_INPUT
KIND_NAMES = ("forward", "backward", "backward_input", "weight")

Operation: TypeAlias = tuple[int, int, int]  # (kind, microbatch, chunk)


class Order(Struct, frozen=True, kw_only=True):
    """One schedule, spelled out.

    `virtual_stage[stage][chunk]` is the position of the chunk in the model, 0 first.
    `pairs[stage]` holds the indices of forwards that run jointly with the backward that follows
    them: both inputs are awaited, then both outputs are sent (DualPipe).
    """

    name: str
    num_microbatches: int
    virtual_stage: tuple[tuple[int, ...], ...]
    stages: tuple[tuple[Operation, ...], ...]
    pairs: tuple[frozenset[int], ...]

    def __hash__(self) -> int:
        """Of what tells most orders apart: their thousands of operations are compared where that is the same."""
        return hash((self.name, self.num_microbatches, self.virtual_stage))

    @property
    def num_stages(self) -> int:
        """Pipeline ranks."""
        return len(self.virtual_stage)

    @property
    def num_chunks(self) -> int:
        """Chunks of the model on each stage."""
        return len(self.virtual_stage[0])

    def virtual_stage_table(self) -> Ints:
        """Positions in the model, as an array [num_stages][num_chunks]."""
        return np.array(self.virtual_stage, dtype=np.int64)


@lru_cache(maxsize=32)
def flattened(order: Order) -> Ints:
    """The operations of an order, stage by stage, each stage in its own order; kept for those that ask next.

    Shapes:  an Order -> [operation][kind, microbatch, chunk], read-only.
    Units:   counts.
    Source:  none, bookkeeping.

    >>> from meshwright.perf.schedules.gpipe import order_gpipe
    >>> flattened(order_gpipe(1, 1)).tolist()
    [[0, 0, 0], [1, 0, 0]]
    """
    numbers = chain.from_iterable(chain.from_iterable(order.stages))
    flat: Ints = np.fromiter(numbers, dtype=np.int64, count=3 * sum(map(len, order.stages))).reshape(-1, 3)
    flat.flags.writeable = False
    return flat


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
