"""``meshwright fix``: the smallest change of a configuration that makes it fit, faster, smaller or legal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import JSON, LAYOUT, SPARE_NODES
from meshwright.api.sources import FILES
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.fix import Change, Fixed, FixQuestion
    from meshwright.frameworks import Framework
    from meshwright.frameworks.settings import Reading
    from meshwright.readers.out_of_memory import OutOfMemory

EPILOG = (
    "Example: meshwright fix train.sh --from megatron --model llama3-70b --device h100-sxm --nodes 4 --oom run.log   "
    "Or: meshwright fix llama3-70b --device h100-sxm --nodes 4 --global-batch 32 --sequence 4096 --memory 70GiB "
    '--layout "tp4 pp4 mb1 sp"'
)
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


FIELDS = (
    Field(name="files", kind="arguments", metavar="FILE...|MODEL", help="Files with --from NAME, or a model with --layout LABEL."),
    *(field for field in FILES if field.name != "files"),
    LAYOUT, SPARE_NODES,
    Field(name="framework", metavar="NAME", panel="Trainer",
          help="With --layout: only what this framework can run [default: megatron]."),
    Field(name="oom", kind="many", metavar="FILE|TEXT", panel=_WISH, in_file=False,
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
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Print the changes; exit status 1 where nothing grants the wish."""
    from meshwright.api.views.fix import fix_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.fix import fix
    from meshwright.report.fix import fix_report

    messages = _messages(values, faults)
    _check(values, faults)
    question, originals = _question(values, faults, messages)
    fixed = fix(question)
    number = values.get("change", 1)
    if fixed.changes and number > len(fixed.changes):
        raise fault("fix.change", "there are {count} changes, and none is number {number}", path="--change",
                    count=len(fixed.changes), number=number)
    applied = _apply(fixed, fixed.changes[number - 1], number, originals) if values["apply"] and fixed.changes else []
    if values["json"]:
        print_json(fix_view(fixed, applied))
    else:
        print_report(fix_report(fixed, number))
        for path in applied:
            print(f"changed: {path}")
    nothing_wrong = fixed.observed is None and (fixed.wish is None or fixed.granted)
    return 0 if fixed.changes or nothing_wrong else 1


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
    if not {"from_", "layout"} & (set(values) | faults.failed):
        faults.add("fix.what", "FILE... with --from NAME, or MODEL with --layout LABEL: what is to be fixed?")
    if "layout" in values and values["apply"]:
        faults.add("fix.apply", "changes files: give them with --from", path="--apply")
    faults.check()


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
    if "layout" in values:
        named = _named(values, faults)
    else:
        from meshwright.readers.safe import read_text

        named = _read(values, faults)
        originals = {path: read_text(path) for path in values["files"]}
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


_NOT_OF_THE_CASE = frozenset({field.name for field in FIELDS if not field.in_file} | {"files", "arguments"})


def _named(values: Values, faults: Faults) -> Named:
    """A layout by its label, for a case by its options."""
    from meshwright.api.cases import setup

    if len(values["files"]) > 1:
        faults.add("fix.model", "one MODEL is wanted with --layout, not {words}", words=" ".join(values["files"]))
    named = {"model": values["files"][0], **values} if values["files"] else values
    given = setup({name: value for name, value in named.items() if name not in _NOT_OF_THE_CASE}, faults)
    return Named(given.framework, given.case, given.layout(values["layout"]), None)


def _read(values: Values, faults: Faults) -> Named:
    """The layout of files, and the case that they and the options make."""
    from meshwright.api.sources import take
    from meshwright.check import Question
    from meshwright.check.context import Context
    from meshwright.errors import InputError

    taken = take(values, faults)
    reading = taken.reading
    if taken.missing:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in taken.missing)
        raise fault("fix.missing", "what the files do not say is missing: {missing}", missing=words)
    if taken.impossible:
        raise InputError(taken.impossible)
    assert taken.case is not None, "nothing is missing or impossible"
    if reading.layout is None:
        none = fault("edit.layout", "the files determine no layout, so there is nothing to change: see what import says")
        raise InputError(reading.messages or none.messages)
    case, framework = taken.case.case, taken.framework.for_case(taken.case.case)
    layout = Context(Question(framework=framework, reading=reading, case=case, model=taken.model)).layout
    if layout is None:
        raise fault(
            "fix.batch", "{batch} sequences do not divide over {dp} replicas of micro-batches of {mb}",
            batch=case.batch.global_batch_sequences, dp=reading.layout.data_parallel, mb=reading.layout.microbatch_sequences,
        )
    return Named(framework, case, layout, reading)


def _apply(fixed: Fixed, change: Change, number: int, originals: dict[str, str]) -> list[str]:
    """Make a change in the files.

    Errors: ``InputError`` where part of it has to be made by hand, unless that is only how the launcher is called.
    """
    from meshwright.api.applying import apply
    from meshwright.errors import InputError, Message

    if change.by_hand and not change.launcher_only:
        template = "change {number} is not applied: part of it has to be made by hand"
        raise InputError((Message("fix.by-hand", template, {"number": number}, "--apply"), *change.by_hand))
    return apply(change.files, originals)
