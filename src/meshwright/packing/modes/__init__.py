"""What other programs do with the same lengths, overflows included: to predict their micro-batches, not to recommend them.

Each mode takes lengths, the limit and the number of ranks, and gives ``[rank][micro-batch][sample]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.packing.modes.chatlearn import chatlearn, kept_limit
from meshwright.packing.modes.nemo_rl import nemo_rl
from meshwright.packing.modes.slime import slime
from meshwright.packing.modes.trl import trl
from meshwright.packing.modes.verl import verl

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks
    from meshwright.packing.cost import Cost

__all__ = ["KEPT_LIMITS", "MODES", "chatlearn", "nemo_rl", "others", "slime", "trl", "verl"]


def _slime_by_flops(lengths: NDArray[np.int64], max_tokens: int, ranks: int, cost: Cost, *, equal: bool) -> Ranks:
    return slime(lengths, max_tokens, ranks, workloads=cost.of_samples(lengths), balance_data=True, balance_by_flops=True)


MODES: dict[str, Callable[..., Ranks]] = {
    "chatlearn": lambda lengths, limit, ranks, cost, *, equal: chatlearn(lengths, limit, ranks, agreed=equal),
    "verl": lambda lengths, limit, ranks, cost, *, equal: verl(lengths, limit, ranks, agreed=equal),
    "slime": lambda lengths, limit, ranks, cost, *, equal: slime(lengths, limit, ranks),
    "slime-flops": _slime_by_flops,
    "nemo-rl": lambda lengths, limit, ranks, cost, *, equal: nemo_rl(lengths, limit, ranks),
    "trl": lambda lengths, limit, ranks, cost, *, equal: trl(lengths, limit, ranks),
}
"""Name -> mode. ``slime-flops`` is slime with --balance-data --balance-by-flops, with the user's own coefficients."""

KEPT_LIMITS: dict[str, Callable[[int, int, int, int], int]] = {"chatlearn": kept_limit}
"""Name -> the limit under which a mode keeps another, whatever the samples are; of modes for which one is proved."""


def others(name: str, lengths: NDArray[np.int64], max_tokens: int, ranks: int, cost: Cost, *, equal: bool = True) -> Ranks:
    """Micro-batches as another program makes them.

    Units:   tokens; lengths ``[samples]`` as that program counts them.
    Errors:  ``InputError`` where that program refuses, in its sense.
    """
    return MODES[name](np.asarray(lengths, dtype=np.int64), max_tokens, ranks, cost, equal=equal)
