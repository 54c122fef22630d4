"""Where a message meets the prediction: the stage that ran out, and how much more than predicted it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import Message
from meshwright.estimate.anchor import Probe, anchored
from meshwright.estimate.costs import vocabulary_rows
from meshwright.judging.memory_messages import Verdict, classify, tenants
from meshwright.units import gib

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed.out_of_memory import OutOfMemory

SAME_SIZE = 0.02
"""How near a request must be to the size of the logits to be taken for them: allocators round, messages too."""
ALIKE = 0.98
"""Ranks that needed so much of the most are alike: the first of them in the log speaks for them."""
STRANGE = 1.4
"""How many times the prediction a run must have needed for it to be asked whether it was the same."""
OTHER_DEVICE = 0.15
"""Relative difference of a device's memory from which a message is of another device than the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What messages say of a layout that ran out of memory; sizes in bytes."""

    said: OutOfMemory
    """The message that counts: of the first rank among those that lacked most."""
    ranks: tuple[int, ...]
    """All that ran out, in the order of the log."""
    verdicts: tuple[Verdict, ...]
    """Of that message; the first is the main one."""
    stage: int | None
    """Stage that ran out; None where nothing tells."""
    why_stage: str
    device_bytes: float
    """What the device offers this training: without what other processes hold."""
    needed_bytes: float | None
    """What the stage needed at least, as the allocator places it; None where it was not the device that ran out."""
    joined_bytes: float | None
    """The same with all pieces joined."""
    margin_bytes: float
    """What comes on top: the run ended before its peak was known."""
    remarks: tuple[Message, ...] = ()

    @property
    def kind(self) -> str:
        """The main verdict."""
        return self.verdicts[0].kind

    def extra_bytes(self, case: Case, estimate: Estimate, *, joined: bool = False) -> float:
        """What to add to the predicted memory of the stage, so that what fits in the case's own bound fits here.

            max(0, max(needed, predicted) + margin - predicted - (device - bound))

        Symbols: bound what the case allows, which keeps a share of the device free; the message says how much there really was.
        Units:   bytes.
        """
        needed = self.joined_bytes if joined else self.needed_bytes
        if needed is None:
            return 0.0
        predicted = self.predicted_bytes(estimate)
        lift = max(needed, predicted) + self.margin_bytes - predicted
        return max(0.0, lift - (self.device_bytes - case.capacity_bytes))

    def predicted_bytes(self, estimate: Estimate) -> float:
        """Predicted bytes of the stage, or of the fullest."""
        if self.stage is None:
            return estimate.memory_reserved_bytes
        return next(each.memory.reserved_bytes for each in estimate.stages if each.stage == self.stage)


def observe(
    case: Case, layout: Layout, estimate: Estimate, messages: Sequence[OutOfMemory], *, stages_inside_replicas: bool = False
) -> Observed:
    """What the messages of a run say of its layout.

    ``stages_inside_replicas``: neighbouring stages are neighbouring ranks, with replicas outermost; else stages are outermost.
    """
    each = [_observed(case, layout, estimate, said, stages_inside_replicas) for said in messages]
    most = max(one.needed_bytes or 0.0 for one in each)
    worst = next(one for one in each if (one.needed_bytes or 0.0) >= ALIKE * most)
    ranks = tuple(dict.fromkeys(said.rank for said in messages if said.rank is not None))
    stages = list(dict.fromkeys(one.stage for one in each if one.stage is not None))
    remarks = list(worst.remarks)
    predicted = worst.predicted_bytes(estimate)
    if worst.needed_bytes is not None and worst.needed_bytes > STRANGE * predicted:
        remarks.append(Message(
            "oom.strange", "the run needed {needed} at least, the prediction is {predicted}: was it this configuration, with "
            "nothing else on the device?", {"needed": gib(worst.needed_bytes), "predicted": gib(predicted)},
        ))
    if len(stages) > 1:
        remarks.append(Message("oom.stages", "stages {stages} ran out, first stage {first}",
                               {"stages": ", ".join(map(str, sorted(stages))), "first": stages[0]}))
    return replace(worst, ranks=ranks, remarks=tuple(remarks))


def stage_of(layout: Layout, rank: int, *, inside_replicas: bool = False) -> int | None:
    """The pipeline stage of a rank; None where the layout has no such rank.

        rank // (world / pp);   where stages lie inside replicas: rank // (tp cp) mod pp

    Source:  Megatron-LM order tp-cp-ep-dp-pp, torchtitan's and DeepSpeed's meshes; picotron and ``--use-tp-pp-dp-mapping`` have the
             second order.
    """
    if not 0 <= rank < layout.world:
        return None
    if inside_replicas:
        return rank // (layout.tensor_parallel * layout.context_parallel) % layout.pipeline_parallel
    return rank // (layout.world // layout.pipeline_parallel)


def _observed(case: Case, layout: Layout, estimate: Estimate, said: OutOfMemory, inside_replicas: bool) -> Observed:
    """What one message says.

    device = limit - others;   needed = device - free + request;   others what other processes hold, or what is kept for them
    """
    remarks: list[Message] = []
    if not said.phase and _is_logits(case, layout, said.requested_bytes):
        said = replace(said, phase="loss", frame=f"the request of {gib(said.requested_bytes or 0)} has the size of the logits")
    stage, why = _stage(case, layout, said, inside_replicas, remarks)
    limit, memory = said.limit_bytes, case.cluster.device.memory_bytes
    if said.capacity_bytes is not None and abs(said.capacity_bytes / memory - 1.0) > OTHER_DEVICE:
        values = {"capacity": gib(said.capacity_bytes), "name": case.cluster.device.name, "memory": gib(memory)}
        remarks.append(
            Message("oom.device", "the message is of a device with {capacity}, the case of {name} with {memory}", values)
        )
    others = max(sum(size for _, size in tenants(said)), case.reserve_ratio * memory)
    device = (memory if limit is None else limit) - others
    verdicts = classify(said)
    needed = None if verdicts[0].kind == "host" else device - (said.open_bytes or 0.0) + (said.requested_bytes or 0.0)
    return Observed(
        said=said, ranks=(), verdicts=verdicts, stage=stage, why_stage=why, device_bytes=device, needed_bytes=needed,
        joined_bytes=None if needed is None else needed - (said.unallocated_bytes or 0.0),
        margin_bytes=_margin(case, estimate, stage, said), remarks=tuple(remarks),
    )


def _margin(case: Case, estimate: Estimate, stage: int | None, said: OutOfMemory) -> float:
    """Half of the interval around the stage's peak once the message anchors it: what of the reserved memory nobody measured."""
    place = estimate.peak_stage if stage is None else stage
    (one,) = (each for each in estimate.stages if each.stage == place)
    seen = (said.allocated_bytes or 0.0) + (said.requested_bytes or 0.0)
    probe = Probe(stage=place, predicted=one.memory, peak_bytes=max(seen, one.memory.allocated_bytes))
    lifted = anchored(case, replace(estimate, stages=(one,), peak_stage=place), [probe])
    return 0.0 if lifted.interval is None else lifted.interval.memory_peak_bytes[1] - lifted.memory_peak_bytes


def _stage(
    case: Case, layout: Layout, said: OutOfMemory, inside_replicas: bool, remarks: list[Message]
) -> tuple[int | None, str]:
    """The stage that ran out, and how that is known."""
    last = layout.pipeline_parallel - 1
    if last == 0:
        return 0, "there is one stage"
    if said.stage is not None and said.stage <= last:
        return said.stage, "the line of the message names it"
    rank = said.rank
    if rank is None and said.device is not None and layout.world <= case.cluster.devices_per_node:
        rank = said.device
    if rank is not None:
        stage = stage_of(layout, rank, inside_replicas=inside_replicas)
        if stage is not None:
            return stage, f"rank {rank} of {layout.world}"
        remarks.append(Message("oom.rank", "the message is of rank {rank}, the layout has ranks 0 to {last}",
                               {"rank": rank, "last": layout.world - 1}))
    if said.phase == "loss":
        return last, "the loss is on the last stage"
    return None, "the message names no rank"


def _is_logits(case: Case, layout: Layout, asked: float | None) -> bool:
    """Whether a request has the size of the logits of a micro-batch, in 2 or 4 bytes."""
    if not asked or case.model.vocabulary <= 0:
        return False
    tokens = layout.microbatch_sequences * case.batch.sequence_tokens / layout.context_parallel
    rows = float(vocabulary_rows(case, np.asarray(float(layout.tensor_parallel)))) / layout.tensor_parallel
    return any(abs(asked / (tokens * rows * width) - 1.0) <= SAME_SIZE for width in (2, 4))
