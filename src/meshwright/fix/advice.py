"""What helps against a message and is no edit of a layout: said in the framework's terms where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meshwright.errors import Message
from meshwright.judging.memory_messages import Kind

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed.out_of_memory import Phase
    from meshwright.fix.observed import Observed
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.facts import Remedy
    from meshwright.frameworks.settings import Reading

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
    phase = observed.said.phase
    remedies = [each for each in framework.facts.remedies if each.phase == phase]
    yield from (Message(f"fix.{phase}", "{words}", {"words": each.words}) for each in remedies if _helps(each, framework, reading))
    if phase == "loss" and layout.pipeline_parallel > 1:
        yield Message("fix.loss", "fewer layers on the last stage make room for the logits, but do not make them smaller", {})
    elif phase in _PHASES:
        yield Message("fix.phase", "{words}", {"words": _PHASES[phase]})


def _helps(remedy: Remedy, framework: Framework, reading: Reading | None) -> bool:
    """Whether a remedy changes anything: the framework has the switch, and it is not set already."""
    key = remedy.key
    if not key:
        return True
    if framework.surface is not None and framework.surface().find(key, framework.version) is None:
        return False
    value = None if reading is None else reading.source.value(key)
    on = value is not None and str(value).lower() not in {"false", "none", "0"}
    return on == remedy.harmful
