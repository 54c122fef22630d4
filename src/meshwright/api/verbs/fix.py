"""``fix``: the smallest change of a configuration that makes it fit, faster, smaller or legal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from meshwright.api import numbers
from meshwright.api.cases import check_names, drafted
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import FORCE, HTML, LAYOUT, SPARE_NODES
from meshwright.api.paged import paged
from meshwright.api.request import Answer, FilesRequest, Progress
from meshwright.api.request_file import saved_plan
from meshwright.api.sources import FILES
from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed.out_of_memory import OutOfMemory
    from meshwright.fix import Fixed, FixQuestion
    from meshwright.frameworks import Framework
    from meshwright.frameworks.settings import Reading

MAX_EDITS = 6
_WISH, _OUTPUT = "Wish", "Output"


def gain(word: str) -> float:
    """``10%`` or ``0.1``: a share above zero."""
    tight = word.strip()
    return numbers.positive(tight[:-1]) / 100 if tight.endswith("%") else numbers.positive(tight)


def edits(word: str) -> int:
    """How many edits a change may have."""
    value = numbers.count(word)
    if value > MAX_EDITS:
        raise fault("fix.edits", "{value} edits at once are no small change; at most {limit}", value=value, limit=MAX_EDITS)
    return value


class FixRequest(FilesRequest, frozen=True, kw_only=True):
    """Files of a framework, or a model with a layout; and one wish."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="files", kind="arguments", metavar="FILE...|MODEL",
              help="Files with --from NAME, or a model with --layout LABEL."),
        *(field for field in FILES if field.name != "files"),
        LAYOUT, SPARE_NODES,
        Field(name="framework", metavar="NAME", panel="Trainer",
              help="With --layout: only what this framework can run [default: megatron]."),
        Field(name="oom", parse=numbers.kept, kind="many", metavar="FILE|TEXT", panel=_WISH, in_file=False,
              help="It ran out of memory: its message or log, repeatable; - reads it from standard input."),
        Field(name="fit", kind="flag", panel=_WISH, in_file=False, help="It must fit; the default where the prediction does not."),
        Field(name="memory", parse=numbers.size, metavar="BYTES", panel=_WISH, in_file=False,
              help="It must fit in so much of each device, as in 60GB or 56GiB."),
        Field(name="faster", parse=gain, metavar="RATIO", panel=_WISH, in_file=False,
              help="It must make so many more tokens/s, as in 10%."),
        Field(name="to_devices", parse=numbers.count, metavar="N", panel=_WISH, in_file=False,
              help="The same training must run on N devices."),
        Field(name="max_edits", parse=edits, metavar="N", panel=_WISH, in_file=False, help="Edits at once, at most [default: 3]."),
        Field(name="top", parse=numbers.count, metavar="N", panel=_OUTPUT, in_file=False,
              help="How many changes to show [default: 10]."),
        Field(name="change", parse=numbers.count, metavar="N", panel=_OUTPUT, in_file=False,
              help="The change to show in full, and to apply [default: 1]."),
        Field(name="apply", kind="flag", panel=_OUTPUT, in_file=False, help="Make the change in the files, in place."),
        HTML, FORCE,
    )

    framework: str | None = None
    """With a layout: what is to run it."""
    layout: str | None = None
    spare_nodes: int | str | None = None
    oom: Sequence[str | Path] = ()
    """Messages of a run that ran out of memory: texts, or paths of logs."""
    fit: bool = False
    memory: int | str | None = None
    faster: float | str | None = None
    to_devices: int | str | None = None
    max_edits: int | str | None = None
    top: int | str | None = None
    change: int | str | None = None
    """The change to show in full, and to apply."""
    apply: bool = False
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class FixAnswer(Answer, frozen=True, kw_only=True):
    """The changes that grant the wish, and what was changed."""

    fixed: Fixed
    number: int
    """The change that is shown in full."""
    applied: tuple[str, ...] = ()
    """Paths of the files that were changed."""

    @property
    def ok(self) -> bool:
        """Whether something grants the wish, or nothing is wrong."""
        nothing_wrong = self.fixed.observed is None and (self.fixed.wish is None or self.fixed.granted)
        return bool(self.fixed.changes) or nothing_wrong

    def to_json(self) -> dict[str, Any]:
        """The document of ``fix --json``."""
        from meshwright.api.views.fix import fix_view

        return fix_view(self.fixed, self.applied)


@door
@paged
def fix(
    request: FixRequest, *, progress: Progress | None = None, told: Callable[[FixAnswer], None] | None = None
) -> FixAnswer:
    """Find the smallest changes, and make one of them where that was asked.

    ``told`` is called with the answer before a file is changed: what cannot be told is not done.

    Errors:  ``InputError`` with every fault of the request, and where a change cannot be applied.
    """
    from meshwright.fix import fix as mended

    faults = Faults()
    values = _of_plan(request).read(faults)
    messages = _messages(values, faults)
    _check(values, faults)
    question, originals = _question(values, faults, messages)
    fixed = mended(question)
    number = values.get("change", 1)
    if fixed.changes and number > len(fixed.changes):
        raise fault("fix.change", "there are {count} changes, and none is number {number}", path="--change",
                    count=len(fixed.changes), number=number)
    if not (values["apply"] and fixed.changes):
        return FixAnswer(fixed=fixed, number=number)
    with _applying(fixed, number, originals) as applied:
        answer = FixAnswer(fixed=fixed, number=number, applied=tuple(applied))
        if told is not None:
            told(answer)
    return answer


def _of_plan(request: FixRequest) -> FixRequest:
    """The request, with a saved plan that stands alone where files stand as ``--request``, as other verbs take it."""
    files = [request.files] if isinstance(request.files, str) else [str(each) for each in request.files]
    plan = saved_plan(files[0]) if len(files) == 1 and not (request.from_ or request.layout or request.request) else None
    return request if plan is None else replace(request, files=(), request=str(plan))


def _check(values: Values, faults: Faults) -> None:
    """Wishes that exclude each other, and two ways of naming what is to be fixed."""
    wishes = [name for name in ("oom", "memory", "faster", "to_devices") if values.get(name)]
    if len(wishes) > 1 and wishes != ["oom", "memory"]:
        faults.add(
            "fix.wishes", "one wish at a time: {wishes}", wishes=" and ".join(f"--{name.replace('_', '-')}" for name in wishes)
        )
    if "from_" in values and "layout" in values:
        faults.add("fix.either", "--from reads files, --layout names a layout: one of the two")
    if "from_" in values and "framework" in values and "request" not in values:
        faults.add("fix.framework", "--from already names the framework of the files", path="--framework")
    if "layout" in values and "arguments" in values:
        faults.add("fix.arguments", "are those of a script: there is none with --layout", path="--arguments")
    files = any(_exists(each) for each in values["files"])
    if files and "framework" in values and not {"from_", "layout", "request"} & set(values):
        faults.add("fix.framework", "names the framework of a layout; that of files is named by --from", path="--framework")
    if not files and not {"from_", "layout"} & (set(values) | faults.failed):
        faults.add("fix.what", "FILE..., MODEL with --layout LABEL, or --request PLAN: what is to be fixed?")
    if "layout" in values and values["apply"]:
        faults.add("fix.apply", "changes files: give them with --from", path="--apply")


def _messages(values: Values, faults: Faults) -> tuple[OutOfMemory, ...]:
    """What ``--oom`` gives: files, text, or standard input."""
    from meshwright.readers.out_of_memory import MAX_BYTES, read_out_of_memory
    from meshwright.readers.safe import read_text

    found: list[OutOfMemory] = []
    for word in values["oom"]:
        with faults:
            if word == "-":
                given, where = sys.stdin.buffer.read(MAX_BYTES + 1), "standard input"
                if len(given) > MAX_BYTES:
                    raise fault("fix.large-log", "larger than {limit} bytes: give its end, as of tail -c 10M", path=where,
                                limit=MAX_BYTES)
                text = given.decode("utf-8", "replace")
            elif not word or (any(character.isspace() for character in word) and not _exists(word)):
                text, where = word, "--oom"
            else:
                text, where = read_text(word, MAX_BYTES, errors="replace"), word
            found += read_out_of_memory(text, where)
    return tuple(found)


def _exists(word: str) -> bool:
    """Whether a word is a path after all."""
    try:
        return Path(word).exists()
    except (OSError, ValueError):
        return False


def _question(values: Values, faults: Faults, messages: tuple[OutOfMemory, ...]) -> tuple[FixQuestion, dict[str, str]]:
    """The configuration and the wish, with the texts of its files."""
    from meshwright.fix import FixQuestion

    originals: dict[str, str] = {}
    if not values["files"] and not {"from_", "layout"} & (set(values) | faults.failed):
        check_names(values, faults)
        faults.check()
    if "layout" in values or ("layout" in faults.failed and "from_" not in values):
        named = _named(values, faults)
    else:
        from meshwright.api.beside import of_the_run
        from meshwright.readers.safe import read_text

        named = _read(values, faults)
        originals = {path: read_text(path) for path in of_the_run(values["files"])[0]}
    case = named.case
    bound = values.get("memory", case.capacity_bytes if values["fit"] else None)
    question = FixQuestion(
        framework=named.framework, case=case, layout=named.layout, reading=named.reading, originals=originals, messages=messages,
        bound_bytes=bound,
        faster_ratio=values.get("faster"), devices=values.get("to_devices"), max_edits=values.get("max_edits", 3),
        top=values.get("top", 10),
    )
    return question, originals


class Named(NamedTuple):
    """What is to be fixed."""

    framework: Framework
    case: Case
    layout: Layout
    reading: Reading | None


_NOT_OF_THE_CASE = frozenset({field.name for field in FixRequest.FIELDS if not field.in_file} | {"files", "arguments"})


def _named(values: Values, faults: Faults) -> Named:
    """A layout by its label, for a case by its options."""
    if len(values["files"]) > 1:
        faults.add("fix.model", "one MODEL is wanted with --layout, not {words!r}", words=" ".join(values["files"]))
    named = {"model": values["files"][0], **values} if values["files"] else values
    if "model" not in values:
        faults.places["model"] = "MODEL"
    draft = drafted({name: value for name, value in named.items() if name not in _NOT_OF_THE_CASE}, faults)
    layout = draft.layout(values, faults)
    faults.check()
    assert draft.setup is not None and layout is not None, "faults.check() raises where one is missing"
    return Named(draft.setup.framework, draft.setup.case, layout, None)


def _read(values: Values, faults: Faults) -> Named:
    """The layout of files, and the case that they and the options make."""
    from meshwright.api.sources import take, wanted
    from meshwright.check import Question, likely_models
    from meshwright.check.context import Context
    from meshwright.frameworks.editing import no_layout

    taken = take(values, faults, figures_do=True)
    reading = taken.reading
    counts = [each for each in reading.messages if each.id == "launch.count"]
    if missing := [name for name in taken.missing if name != "cluster" or not counts]:
        likely = likely_models(reading) if "model" in missing else ()
        hint = "; the figures are those of {likely}: --model {first}" if likely else "; {why}" if taken.unmodelled else ""
        values_of = {"missing": wanted(missing), "likely": " or ".join(likely), "first": likely[0] if likely else "",
                     "why": "; ".join(map(str, taken.unmodelled))}
        counts += [each for each in reading.messages if each.id.startswith("setting.")]  # said, but not so that it can be read
        counts.append(Message("fix.missing", "what the files do not say is missing: {missing}" + hint, values_of))
    if counts:
        raise InputError(counts)
    if taken.impossible:
        raise InputError(taken.impossible)
    assert taken.case is not None, "nothing is missing or impossible"
    if reading.layout is None:
        raise InputError(no_layout(reading))
    case, framework = taken.case.case, taken.framework.for_case(taken.case.case)
    layout = Context(Question(framework=framework, reading=reading, case=case, model=taken.model)).layout
    if layout is None:
        raise fault(
            "fix.batch", "{batch} sequences do not divide over {dp} replicas of micro-batches of {mb}",
            batch=case.batch.global_batch_sequences, dp=reading.layout.data_parallel, mb=reading.layout.microbatch_sequences,
        )
    return Named(framework, case, layout, reading)


@contextmanager
def _applying(fixed: Fixed, number: int, originals: dict[str, str]) -> Iterator[list[str]]:
    """Make a change in the files when the body has ended well; yields their paths.

    Errors: ``InputError`` where part of it has to be made by hand, unless that is only how the launcher is called.
    """
    from meshwright.outputs import Output, writing

    change = fixed.changes[number - 1]
    if change.by_hand and not change.launcher_only:
        template = "change {number} is not applied: part of it has to be made by hand"
        raise InputError((Message("fix.by-hand", template, {"number": number}, "--apply"), *change.by_hand))
    with writing([Output(path=file.path, text=file.text, read=originals[file.path]) for file in change.files]) as paths:
        yield paths
