"""The dependencies of an order as flat arrays, one entry per operation."""

import numpy as np
from msgspec import Struct

from meshwright.perf.schedules.operations import BACKWARD_INPUT, FORWARD, WEIGHT, Order
from meshwright.perf.schedules.values import Bools, Ints


class Operations(Struct, frozen=True, kw_only=True, eq=False):
    """Stage by stage, each stage in its own order; `first[i]` is where stage i begins.

    `needs` is the operation on another (or the same) stage whose result is awaited, -1 for none;
    `remote` says that it comes from another stage; `sends` that the result goes to another stage;
    `paired` that a forward runs jointly with the next operation.
    """

    stage: Ints
    kind: Ints
    microbatch: Ints
    chunk: Ints
    first: Ints
    needs: Ints
    remote: Bools
    sends: Bools
    paired: Bools


def operations(order: Order) -> Operations:
    """Flatten an order and look up what each operation waits for.

    A forward needs the forward of the previous chunk of the model, a backward that of the next
    chunk (the loss: its own forward), a weight gradient its own backward.

    Shapes:  an Order -> arrays of one entry per operation.
    Units:   counts.
    Holds:   every operation present exactly once, and each chunk's forward, backward, weight
             gradient in this order on its stage; AssertionError otherwise.
    Source:  none, bookkeeping.

    >>> from meshwright.perf.schedules.gpipe import order_gpipe
    >>> operations(order_gpipe(2, 1)).needs.tolist()
    [-1, 3, 0, 2]
    """
    num_stages, num_chunks = order.num_stages, order.num_chunks
    last = num_stages * num_chunks - 1
    first = np.concatenate(([0], np.cumsum(order.lengths)))
    kind, microbatch, chunk = order.operations.T.copy()
    stage = np.repeat(np.arange(num_stages), order.lengths)
    table = order.virtual_stage_table()
    place = table[stage, chunk]
    home = np.empty(last + 1, dtype=np.int64)
    home[table] = np.arange(num_stages)[:, None]
    paired = np.zeros(kind.size, dtype=np.bool_)
    for index, starts in enumerate(order.pairs):
        paired[first[index] + np.array(sorted(starts), dtype=np.int64)] = True

    ids = np.arange(kind.size)
    where = np.full((3, last + 1, order.num_microbatches), -1, dtype=np.int64)
    is_forward, is_weight = kind == FORWARD, kind == WEIGHT
    is_backward = ~is_forward & ~is_weight
    for row, chosen in enumerate((is_forward, is_backward, is_weight)):
        where[row, place[chosen], microbatch[chosen]] = ids[chosen]
    forward_id, backward_id, weight_id = where
    split = np.where(backward_id >= 0, kind[backward_id] == BACKWARD_INPUT, False)
    assert forward_id.min() >= 0 and backward_id.min() >= 0, "an operation is missing"
    assert kind.size == 2 * forward_id.size + int(split.sum()), "an operation is repeated"
    assert ((weight_id >= 0) == split).all(), "weight gradients must match split backwards"
    assert (backward_id > forward_id).all(), "deadlock: a backward precedes its forward"
    assert (~split | (weight_id > backward_id)).all(), "deadlock: a weight gradient comes early"

    needs = np.full(kind.size, -1, dtype=np.int64)
    inner = is_forward & (place > 0)
    needs[inner] = forward_id[place[inner] - 1, microbatch[inner]]
    inner = is_backward & (place < last)
    needs[inner] = backward_id[place[inner] + 1, microbatch[inner]]
    loss = is_backward & (place == last)
    needs[loss] = forward_id[last, microbatch[loss]]
    needs[is_weight] = backward_id[place[is_weight], microbatch[is_weight]]
    down = home[np.minimum(place + 1, last)] != stage
    up = home[np.maximum(place - 1, 0)] != stage
    return Operations(
        stage=stage,
        kind=kind,
        microbatch=microbatch,
        chunk=chunk,
        first=first,
        needs=needs,
        remote=(needs >= 0) & (stage[needs] != stage),
        sends=(is_forward & down) | (is_backward & up),
        paired=paired,
    )
