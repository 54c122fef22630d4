"""The operation order of DualPipeV: two chunks per stage, folded into a V."""

from collections import deque

from meshwright.perf.schedules.operations import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    WEIGHT,
    Operation,
    Order,
    require_counts,
    v_placement,
)


class _StageBuilder:
    """Appends operations of one stage, numbering the microbatches of each chunk as they come."""

    __slots__ = ("backwards", "forwards", "ops", "pairs", "postponed")

    def __init__(self) -> None:
        self.ops: list[Operation] = []
        self.pairs: set[int] = set()
        self.forwards = [0, 0]
        self.backwards = [0, 0]
        self.postponed: deque[tuple[int, int]] = deque()

    def forward(self, chunk: int) -> None:
        self.ops.append((FORWARD, self.forwards[chunk], chunk))
        self.forwards[chunk] += 1

    def backward(self, chunk: int, *, split: bool = False) -> None:
        microbatch = self.backwards[chunk]
        self.backwards[chunk] += 1
        self.ops.append((BACKWARD_INPUT if split else BACKWARD, microbatch, chunk))
        if split:
            self.postponed.append((microbatch, chunk))

    def weight(self) -> None:
        self.ops.append((WEIGHT, *self.postponed.popleft()))

    def pair(self, forward_chunk: int, backward_chunk: int) -> None:
        self.pairs.add(len(self.ops))
        self.forward(forward_chunk)
        self.backward(backward_chunk)


def order_dualpipev(num_stages: int, num_microbatches: int) -> Order:
    """DeepSeek's DualPipeV, step by step as in its `step` method.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   M >= 2 P, as the reference demands (ValueError otherwise). Sends are taken as posted
             when the operation (or the pair) ends; the reference batches some of them with the
             next receive.
    Source:  github.com/deepseek-ai/DualPipe, dualpipe/dualpipev.py, steps 1 to 8.

    >>> [len(ops) for ops in order_dualpipev(2, 4).stages]
    [19, 18]
    """
    require_counts(num_stages, num_microbatches)
    if num_microbatches < 2 * num_stages:
        raise ValueError(
            "DualPipeV needs `num_microbatches >= 2 * num_stages`, "
            f"but got ({num_microbatches=}, {num_stages=}); use at least {2 * num_stages}."
        )
    built = [_stage(stage, num_stages, num_microbatches) for stage in range(num_stages)]
    return Order.of(
        name="dualpipev",
        num_microbatches=num_microbatches,
        virtual_stage=v_placement(num_stages),
        stages=[b.ops for b in built],
        pairs=tuple(frozenset(b.pairs) for b in built),
    )


def _stage(stage: int, num_stages: int, num_microbatches: int) -> _StageBuilder:
    build = _StageBuilder()
    below = num_stages - stage - 1
    for _ in range(2 * below):  # 1: F0
        build.forward(0)
    for _ in range(stage + 1):  # 2: F0 F1
        build.forward(0)
        build.forward(1)
    for _ in range(below):  # 3: I1 W1 F1
        build.backward(1, split=True)
        build.weight()
        build.forward(1)
    for repeat in range(num_microbatches - 2 * num_stages + stage + 1):  # 4: F0&B1 F1&B0
        if repeat == 0 and stage == num_stages - 1:  # unpaired, to shorten the bubble
            build.forward(0)
            build.backward(1)
        else:
            build.pair(0, 1)
        build.pair(1, 0)
    for _ in range(below):  # 5: B1 F1&B0
        build.backward(1)
        build.pair(1, 0)
    half = (stage + 1) // 2
    for repeat in range(stage + 1):  # 6: B1 B0, split in the second half
        build.backward(1, split=repeat > half or (repeat == half and stage % 2 == 1))
        build.backward(0, split=repeat >= half)
    for _ in range(below):  # 7: W I0
        build.weight()
        build.backward(0, split=True)
    for _ in range(stage + 1):  # 8: W
        build.weight()
    assert not build.postponed
    return build
