"""PyTorch's pipeline schedules by the layout's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from meshwright.engine.stages import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.engine.mesh import Ranks

SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zb1p": ScheduleInterleavedZeroBubble,
    "dualpipev": ScheduleDualPipeV,
}
SINGLE = ("gpipe", "1f1b")
"""Schedules with one stage per rank, which take a stage and not a list."""


def schedule_of(
    parts: Sequence[nn.Module], model: Model, layout: Layout, ranks: Ranks, *,
    sequence_tokens: int, dtype: torch.dtype, device: torch.device, loss_scale: float,
) -> Any:
    """The schedule of this rank over its parts, which return the loss where they have the head.

    Shapes between stages are said beforehand, so that no trial step infers them. Gradients are of loss x ``loss_scale``.
    """
    batch, tokens = layout.microbatch_sequences, sequence_tokens // layout.context_parallel
    split = layout.tensor_parallel if layout.sequence_parallel else 1
    hidden = torch.empty((batch, tokens // split, model.hidden), dtype=dtype, device="meta", requires_grad=True)
    identifiers = torch.empty((batch, tokens), dtype=torch.int64, device="meta")
    loss = torch.empty((), dtype=torch.float32, device="meta", requires_grad=True)
    stages = [
        PipelineStage(
            part, place.index, place.stages, device, group=ranks.mesh["pp"].get_group(),
            input_args=(identifiers if place.first else hidden,), output_args=(loss if place.last else hidden,),
        )
        for part, place in zip(parts, places(model, layout, ranks.place("pp")), strict=True)
    ]

    def scaled(out: Tensor, _: Tensor) -> Tensor:
        return out * loss_scale

    name = "interleaved" if layout.schedule == "1f1b" and layout.virtual_stages > 1 else layout.schedule
    one = name in SINGLE
    return SCHEDULES[name](
        stages[0] if one else stages, n_microbatches=layout.num_microbatches, loss_fn=scaled, scale_grads=False
    )
