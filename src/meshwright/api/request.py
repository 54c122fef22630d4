"""What a verb is asked, and what it answers: the two kinds of values that pass the door.

A request holds options under the names of the command line, as values or as text; both are parsed by the one table of the verb
(``FIELDS``), so that the command line, a request file and Python find the same faults, all at once, and read alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.fields import Faults, Field, Values
from meshwright.api.numbers import within
from meshwright.api.request_file import read_request_file, saved_plan
from meshwright.errors import MeshwrightError, Message
from meshwright.text import kind, shown
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.model import Model

INTERRUPTED = 130
"""Exit status of what Ctrl-C ended, as shells have it: 128 and the signal."""
Progress = Callable[[str, float, float], None]
"""Called with a noun, how many are done, and how many there are."""


def ticking(progress: Progress | None, noun: str) -> Callable[[float, float], None] | None:
    """Progress of one kind of things; None where nobody watches."""
    return None if progress is None else partial(progress, noun)


class Request(Value, frozen=True, kw_only=True):
    """Base of all requests. Fields are those of ``FIELDS``; None was not said."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def read(self, faults: Faults) -> Values:
        """What was said, parsed, over what the request file says; faults are noted and left out."""
        return read(self.FIELDS, {field.name: getattr(self, field.name) for field in self.FIELDS}, faults)


class ModelOnCluster(Request, frozen=True, kw_only=True):
    """A model on a cluster, and the numbers that it is trained in: what names a case, but for its batch and the framework."""

    model: str | Path | Model | None = None
    """A catalogue name, a ``config.json``, a model YAML, or the value itself."""
    layers: int | str | None = None
    request: str | Path | None = None
    """YAML with any of these options, or a saved ``plan.yaml``; what is said here wins."""
    cluster: str | Path | Cluster | None = None
    """A catalogue name, a cluster YAML, or the value itself."""
    device: str | None = None
    nodes: int | str | None = None
    devices: int | str | None = None
    devices_per_node: int | str | None = None
    task: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    gradient_dtype: str | None = None
    implementation: str | None = None
    launch: str | None = None
    """How the run is launched, as in ``graphs=none deterministic=on``."""
    calibration: str | Path | None = None
    flops_convention: str | None = None
    max_memory_ratio: float | str | None = None
    reserve_memory_ratio: float | str | None = None


class NamedCase(ModelOnCluster, frozen=True, kw_only=True):
    """A model on a cluster with a batch: what names a case, but for the framework."""

    global_batch: int | str | None = None
    """Sequences of one optimizer step; with lengths samples."""
    sequence: int | str | None = None
    """Tokens of a sequence."""
    lengths: str | Path | None = None
    """A file of lengths of samples, which are packed; the global batch counts samples then."""
    max_tokens: int | str | None = None
    """The most tokens of a pack."""
    packs: int | str | None = None
    """Packs of an optimizer step."""
    split_long: bool = False


class CaseRequest(NamedCase, frozen=True, kw_only=True):
    """A case, and the framework that is to run it."""

    framework: str | None = None


class FilesRequest(NamedCase, frozen=True, kw_only=True):
    """Files of a framework, and what they leave open of the case that they train."""

    files: Sequence[str | Path] = ()
    from_: str | None = None
    """The framework that the files are for: ``megatron``, ``megatron@0.16``."""
    arguments: str | None = None
    """What a script is called with, as one text of words."""


class Answer(Value, frozen=True, kw_only=True):
    """Base of all answers."""

    asked: Request | None = None
    """What it answers, where it has a page."""
    page: str = ""
    """The page of it that was written."""

    @property
    def ok(self) -> bool:
        """Whether the answer is a yes."""
        return True

    @property
    def status(self) -> int:
        """The exit status: 0 is a yes, 1 a no."""
        return 0 if self.ok else 1

    @property
    def refusal(self) -> Message | None:
        """Why part of what was asked was not done, though there is an answer."""
        return None

    def to_json(self) -> dict[str, Any]:
        """The document that ``--json`` prints: plain values, units in the keys."""
        raise NotImplementedError

    def _repr_html_(self) -> str | None:
        """Its page in a frame of a notebook; None where it has none."""
        from meshwright.api.renderers import render

        return render("answer.frame", self) or None


def read(fields: Sequence[Field], raw: Mapping[str, Any], faults: Faults) -> Values:
    """Flags over the request file, parsed; what is wrong is noted in ``faults`` and left out.

    A saved plan in the place of the model is that request file.
    """
    raw = _plan_for_model(raw, faults)
    file: Mapping[str, Any] = {}
    unread = False
    where = str(raw.get("request") or "")
    if where:
        before = len(faults.messages)
        with faults:
            file = read_request_file(where, faults)
        unread = not file and len(faults.messages) > before
    values: dict[str, Any] = {}
    for field in fields:
        flagged = raw.get(field.name)
        said = not (flagged is None or flagged is False or (isinstance(flagged, (list, tuple)) and not flagged))
        given, path = (flagged, field.option) if said else (file.get(field.name), f"{where}: {field.name}")
        faults.places[field.name] = path if given is not None else field.option
        if flagged == "":
            faults.add("option.empty", "an empty value", path=field.option)
            faults.failed.add(field.name)
        elif field.kind == "flag":
            values[field.name] = _switch(given, faults, path)
        elif field.kind in ("many", "arguments"):
            parsed = [_parsed(field, each, faults, path, from_file=not said) for each in _several(given)]
            values[field.name] = [each for each in parsed if each is not None]
        elif given is not None and (value := _parsed(field, given, faults, path, from_file=not said)) is not None:
            values[field.name] = value
    if "html" in values:
        from meshwright.outputs import obstacles

        read_from = [str(each) for name in _FILES for each in _several(values.get(name))]
        faults.note(obstacles([str(values["html"])], inputs=read_from, force=bool(values.get("force")), fresh=True))
    if unread:  # everything else would only seem to be missing
        faults.check()
    return values


_FILES = (
    "model", "request", "cluster", "lengths", "calibration", "files", "csv", "plan", "measured", "training_config", "template",
    "oom", "layouts", "replay",
)
"""Options that may name a file that is read."""


def _plan_for_model(raw: Mapping[str, Any], faults: Faults) -> Mapping[str, Any]:
    """The options, a saved plan that stands where a model is named as ``--request``; a model's name is a model."""
    from meshwright.catalog.model_sheet import model_names

    where = raw.get("model")
    if not isinstance(where, str) or not where:
        return raw
    plan = saved_plan(where)
    if plan is None or model_names().find(where) is not None:
        return raw
    if raw.get("request"):
        faults.add("request.two", "is a saved plan, which is a request of its own beside --request {other}: one of them",
                   path=where, other=raw["request"])
        faults.check()
    return {**raw, "model": None, "request": str(plan)}


def _several(given: object) -> list[Any]:
    """The values of a repeatable option: a list, or in a file also a mapping or one value."""
    if isinstance(given, Mapping):
        return [f"{key}={_word(value)}" for key, value in given.items()]
    return list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]


def _parsed(field: Field, value: object, faults: Faults, path: str, *, from_file: bool) -> Any:
    """The parsed value of one field, or None and a fault."""
    if isinstance(value, (list, dict)) or (from_file and not isinstance(value, (str, int, float))):
        faults.add("option.scalar", "{value} is {kind}: one value is expected", path=path, value=shown(value), kind=kind(value))
        faults.failed.add(field.name)
        return None
    if not isinstance(value, (str, int, float, Path)):  # a value of the domain, as Python gives it
        return value
    try:
        return within(field.name, field.parse(_word(value)), _word(value))
    except MeshwrightError as error:
        faults.note(replace(each, path=path) for each in error.messages)
        faults.failed.add(field.name)
        return None


def _switch(value: object, faults: Faults, path: str) -> bool:
    """A flag of the command line or of a file."""
    if isinstance(value, bool) or value is None:
        return bool(value)
    faults.add("option.switch", "{value!r} is neither true nor false", path=path, value=value)
    return False


def _word(value: object) -> str:
    """One value of YAML as the text that a flag would have been."""
    return str(value).lower() if isinstance(value, bool) else str(value)
