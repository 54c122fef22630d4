"""Context parallelism by the length of each sample, beside one degree for all: what ``pack --tokens-per-rank`` adds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.errors import InputError
from meshwright.packing import pack, prepared
from meshwright.packing.context import alignment
from meshwright.packing.dynamic import Step, by_degree, dynamic
from meshwright.packing.figures import figures
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.api.cases import Setup
    from meshwright.api.packed_steps import Rules
    from meshwright.domain.layout import Layout
    from meshwright.packing import Cost


class Dynamic(Value, frozen=True, kw_only=True):
    """One optimizer step on groups of ranks, and the same with one degree for all samples."""

    rank_tokens: int
    ranks: int
    """Of data and context parallelism."""
    step: Step
    samples_by_degree: Mapping[int, int]
    static_degree: int
    """What the longest sample needs."""
    static_ratio: float | None
    """The step with that degree for all over this one; None without a model, or where its replicas do not share the samples."""


def dynamic_step(
    step: NDArray[np.int64], rank_tokens: int, rules: Rules, given: Setup | None, layout: Layout | None
) -> Dynamic:
    """A step's samples on groups of ranks, by the cost model of each degree where there is one.

    Errors:  ``InputError`` for what ``packing.dynamic`` refuses.
    """
    tensor, context = (layout.tensor_parallel, layout.context_parallel) if layout else (1, 1)
    ranks = rules.data_parallel * context
    costs = by_degree(ranks) if given is None or layout is None else _costs(given, layout, ranks, rank_tokens)
    found = dynamic(step, rank_tokens, ranks, costs, tensor_parallel=tensor)
    degrees = Counter(each.degree for each in found.groups for _ in each.samples)
    needed = max(1, -(-int(step.max()) // rank_tokens))
    static = 1 << (needed - 1).bit_length()
    return Dynamic(
        rank_tokens=rank_tokens, ranks=ranks, step=found, samples_by_degree=dict(sorted(degrees.items())), static_degree=static,
        static_ratio=None if given is None else _static_ratio(step, rank_tokens, ranks, static, costs[static], tensor, found),
    )


def _costs(given: Setup, layout: Layout, ranks: int, rank_tokens: int) -> dict[int, Cost]:
    """Seconds of a rank in groups of each size: communication between them, and kernels of shorter pieces, included."""
    from meshwright.domain.training import Batch
    from meshwright.estimate.packing_cost import packing_cost

    found = {}
    for degree in by_degree(ranks):
        replicas = max(1, ranks // degree)
        batch = Batch(global_batch_sequences=replicas * layout.num_microbatches, sequence_tokens=rank_tokens * degree)
        own = replace(layout, context_parallel=degree, data_parallel=replicas, microbatch_sequences=1)
        found[degree] = packing_cost(replace(given.case, batch=batch), own)
    return found


def _static_ratio(
    step: NDArray[np.int64], rank_tokens: int, ranks: int, degree: int, cost: Cost, tensor: int, found: Step
) -> float | None:
    """The dearest replica under one degree for all, over the dearest rank here."""
    align, limit = alignment(tensor, degree), rank_tokens * degree
    try:
        dealt = pack(step, limit, max(1, ranks // degree), cost, align=align)
    except InputError:
        return None
    return figures(dealt, prepared(step, limit, align=align), limit, cost).dearest / max(found.loads)
