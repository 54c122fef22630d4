"""The user's own script as what trials run: ``{tensor_parallel}`` and the like stand for the layout of each.

A field is a name of small letters in braces, not behind ``$`` (``${PORT}`` stays the shell's). ``{{print}}`` is ``{print}``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from meshwright.documents.source import File
from meshwright.domain.label import recompute_word
from meshwright.errors import InputError, Message, did_you_mean, fault
from meshwright.measure.trial import Limits, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.measure.chooser import Candidate

_FIELD = re.compile(r"\{\{([a-z_]+)\}\}|(?<![$\w])\{([a-z_]+)\}")
KNOBS = (
    "tensor_parallel", "sequence_parallel", "context_parallel", "pipeline_parallel", "virtual_stages", "expert_parallel",
    "expert_tensor_parallel", "data_parallel", "microbatch_sequences", "num_microbatches", "optimizer_shards", "gradient_shards",
    "parameter_shards", "recompute", "schedule", "zero_stage",
)
RUNNERS = {".sh": ("bash",), ".bash": ("bash",), ".py": ("python3",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A script with fields."""

    name: str
    text: str
    path: str
    """As the user names it, for messages."""

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Its fields with their lines, in order."""
        return tuple((found[2], self.text.count("\n", 0, found.start()) + 1) for found in _FIELD.finditer(self.text) if found[2])

    def check(self, case: Case, candidates: Sequence[Candidate]) -> None:
        """Refuse fields that nobody knows, and scripts that run the same whatever the layout.

        Errors:  InputError with every fault.
        """
        known = set(_names())
        found = [
            Message("template.field", "unknown field {name!r} (a brace of your own is written twice: {{{{{name}}}}}){hint}",
                    {"name": name, "hint": did_you_mean(name, known)}, path=f"{self.path}:{line}")
            for name, line in self.fields if name not in known
        ]
        if not found:
            found += self._alike(case, candidates)
        if PurePath(self.name).suffix not in RUNNERS:
            found.append(Message("template.kind", "is neither a shell script (.sh) nor a program of Python (.py)", {},
                                 path=self.path))
        if found:
            raise InputError(found)

    def _alike(self, case: Case, candidates: Sequence[Candidate]) -> list[Message]:
        """Two layouts that the script could not tell apart, where there are any."""
        seen: dict[tuple[str, ...], Candidate] = {}
        for each in candidates:
            values = values_of(case, each.layout, each.label)
            other = seen.setdefault(tuple(values[name] for name, _ in self.fields), each)
            if lacking := [f"{{{knob}}}" for knob in KNOBS if _word(other.layout, knob) != _word(each.layout, knob)]:
                return [Message("template.missing", "has no field {lacking}: {one!r} and {other!r} would run the same",
                                {"lacking": " or ".join(lacking), "one": other.label, "other": each.label}, path=self.path)]
        return []

    def trial(self, case: Case, candidate: Candidate, *, steps: int, limits: Limits) -> Trial:
        """The script with the layout of a candidate filled in; texts are quoted as words of a shell."""
        layout, cluster = candidate.layout, case.cluster
        values = values_of(case, layout, candidate.label) | {"steps": str(steps)}
        text = _FIELD.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], self.text)
        per_node = min(layout.world, cluster.devices_per_node)
        return Trial(
            label=candidate.label, command=(*RUNNERS[PurePath(self.name).suffix], self.name),
            files=(File(path=self.name, text=text, executable=True),), devices=layout.world, nodes=-(-layout.world // per_node),
            devices_per_node=per_node, accelerators=cluster.device.family != "cpu", limits=limits, steps=steps,
        )


def values_of(case: Case, layout: Layout, name: str) -> dict[str, str]:
    """Field -> what stands for it."""
    cluster = case.cluster
    per_node = min(layout.world, cluster.devices_per_node)
    quoted = {"label": name, "model": case.model.name}
    return {
        **{knob: _word(layout, knob) for knob in KNOBS},
        "devices": str(layout.world), "nodes": str(-(-layout.world // per_node)), "devices_per_node": str(per_node),
        "global_batch": str(case.batch.global_batch_sequences), "sequence": str(case.batch.sequence_tokens), "steps": "0",
        "layers": str(case.model.num_layers), **{field: shlex.quote(text) for field, text in quoted.items()},
    }


def _names() -> tuple[str, ...]:
    return (*KNOBS, "devices", "nodes", "devices_per_node", "global_batch", "sequence", "steps", "layers", "label", "model")


def _word(layout: Layout, knob: str) -> str:
    value = recompute_word(layout.recompute) if knob == "recompute" else getattr(layout, knob)
    return str(int(value)) if isinstance(value, bool) else str(value)


def read_template(path: str) -> Template:
    """A template from a file.

    Errors:  InputError where it cannot be read, or is empty.
    """
    from meshwright.readers.safe import read_text

    text = read_text(path)
    if not text.strip():
        raise fault("template.empty", "is empty", path=path)
    return Template(name=PurePath(path).name, text=text, path=path)
