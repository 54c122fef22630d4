"""What reading the files had to say: what was not understood, and why there is no layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.documents.naming import ASKED_FOR
from meshwright.frameworks.settings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.errors import Message
    from meshwright.frameworks.settings import Severity

TAKEN = frozenset({"import.beside", "import.taken", "import.model-built", "import.model-known", "import.whole-samples"})
"""Remarks on how files were taken: all of them was understood."""
_SEVERITIES: dict[str, Severity] = {
    "json.comment": "error", "source.twice": "advice", **dict.fromkeys(TAKEN, "advice"),
    "shell.unknown": "advice", "shell.condition": "advice", "shell.undecided": "advice", "launch.count": "error",
    "slime.runtime-env": "error",
}
"""Remarks that are no warning. What only the running script knows is one where a setting depends on it: then the reading
says so."""


_NEVER_FATAL = frozenset({
    "megatron.rampup", "megatron.uniform", "megatron.offload-share", "megatron.full-hsdp", "import.select", "import.unmapped",
    "chatlearn.packed",
})
"""Messages of readers that never keep a layout from being known."""


def remarks(context: Context) -> Iterator[Finding]:
    """What the files' own language leaves open or forbids; with a layout, what only the run knows (an address) decides nothing,
    and where a file is missing, its folder does not."""
    missing = any(message.id in ASKED_FOR for message in context.reading.messages)
    for message in context.reading.source.remarks:
        if message.id == "shell.unknown" and (missing or context.reading.layout is not None):
            continue
        yield Finding(message=placed(message), severity=_SEVERITIES.get(message.id, "warning"))


def experts(context: Context) -> Iterator[Finding]:
    """Experts that the devices have no room for; where the model is known, a limit says it."""
    layout = context.reading.layout
    if layout is None or context.case is not None:
        return
    each = layout.expert_parallel * layout.expert_tensor_parallel
    if (layout.tensor_parallel * layout.context_parallel * layout.data_parallel) % each:
        yield finding(
            "error", "check.experts", "world size ({world}) is not divisible by ep x etp x pp = {ep} x {etp} x {pp} = {product}",
            world=layout.world, ep=layout.expert_parallel, etp=layout.expert_tensor_parallel, pp=layout.pipeline_parallel,
            product=each * layout.pipeline_parallel,
        )


def placed(message: Message) -> Message:
    """A message about a file with the line that it names in its place, as ``train.sh:4``."""
    line = message.values.get("line")
    if not message.path or not isinstance(line, int) or message.path.endswith(f":{line}"):
        return message
    return replace(message, path=f"{message.path}:{line}")


def messages(context: Context) -> Iterator[Finding]:
    """What could not be mapped; errors where that leaves no layout."""
    reading = context.reading
    said = {str(remark) for remark in reading.source.remarks}
    for message in reading.messages:
        if str(message) in said and reading.layout is not None:
            continue  # a remark says it already
        fatal = reading.layout is None and message.id not in _NEVER_FATAL
        severity: Severity = "error" if fatal else "warning"
        yield Finding(message=placed(message), severity=severity, value=message.values.get("value"))
    for message in context.question.impossible:
        yield finding("error", "check.impossible", "the files cannot be trained as they say: {reason}", reason=str(message))
    if reading.layout is None and not reading.messages:
        yield finding("error", "check.no-layout", "the files determine no layout")
