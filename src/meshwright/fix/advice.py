"""What helps against a message and is no edit of a layout: said in the framework's terms where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meshwright.errors import Message
from meshwright.fix.classify import Kind

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.fix.observed import Observed
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading
    from meshwright.readers.traceback_phase import Phase

LOSS: Mapping[str, tuple[str, str]] = {
    "megatron": ("--cross-entropy-loss-fusion", "--cross-entropy-loss-fusion keeps fewer copies of the logits"),
    "chatlearn": ("models.policy_trainer.megatron_model_cfg.cross_entropy_loss_fusion",
                  "megatron_model_cfg.cross_entropy_loss_fusion: true keeps fewer copies of the logits"),
    "mindspeed-llm": ("--cross-entropy-loss-fusion", "--cross-entropy-loss-fusion keeps fewer copies of the logits"),
}
"""Framework -> the switch of its own for a smaller loss, and what it does. It changes no layout and is not predicted."""
UNSHARDED: Mapping[str, tuple[str, str]] = {
    "torchtitan": ("parallelism.disable_loss_parallel", "parallelism.disable_loss_parallel=false splits the logits over tp ranks"),
}
"""Framework -> a switch that, where it is on, makes the loss larger."""
GATHER: Mapping[str, str] = {
    "deepspeed": "zero_optimization.stage3_max_live_parameters and stage3_prefetch_bucket_size say how much is gathered ahead",
    "torchtitan": "parallelism.fsdp_reshard_after_forward says whether gathered layers are kept between forward and backward",
    "accelerate": "fsdp_reshard_after_forward, or zero_optimization.stage3_max_live_parameters, says how much stays gathered",
}
_KINDS: Mapping[Kind, str] = {
    "request larger than the device": "such a tensor grows with micro-batch x sequence x vocabulary (logits: a chunked or fused "
                                      "loss), or with the sequence squared (an attention mask: flash attention)",
    "other tenant": "end the other processes on the device, or plan beside them with --reserve-memory-ratio",
    "host": "fewer workers and smaller buffers of data loading, no optimizer states in host memory, or more memory for the job",
    "outside the allocator": "leave more of the device free for it (--memory), or make its buffers smaller (fewer communicators, "
                             "NCCL_BUFFSIZE)",
}
_PHASES: Mapping[Phase, str] = {
    "experts": "routing decides how full the fullest expert is: a run may need more in another step",
    "setup": "it ran out before its first step: parameters, gradients and optimizer states alone are too much",
}


def advice(observed: Observed, framework: Framework, reading: Reading | None, layout: Layout) -> Iterator[Message]:
    """Remedies of each verdict, most general last."""
    for verdict in observed.verdicts:
        if words := _KINDS.get(verdict.kind):
            yield Message("fix.advice", "{words}", {"words": words})
    phase, name = observed.said.phase, framework.name
    if phase == "loss":
        yield from _loss(framework, reading)
        if layout.pipeline_parallel > 1:
            yield Message("fix.loss", "fewer layers on the last stage make room for the logits, but do not make them smaller", {})
    elif phase == "gather" and name in GATHER:
        yield Message("fix.gather", "{words}", {"words": GATHER[name]})
    elif phase in _PHASES:
        yield Message("fix.phase", "{words}", {"words": _PHASES[phase]})


def _loss(framework: Framework, reading: Reading | None) -> Iterator[Message]:
    """The framework's own switches for the loss, where they are not set already."""
    for table, harmful in ((LOSS, False), (UNSHARDED, True)):
        key, words = table.get(framework.name, ("", ""))
        if not key or (framework.surface is not None and framework.surface().find(key, framework.version) is None):
            continue
        value = None if reading is None else reading.source.value(key)
        on = value is not None and str(value).lower() not in {"false", "none", "0"}
        if on == harmful:
            yield Message("fix.loss", "{words}", {"words": words})
