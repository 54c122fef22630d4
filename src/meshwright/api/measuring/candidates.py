"""Which layouts a verb that runs trials may run: the search's first, those of a file, or the whole grid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.pins import consistent
from meshwright.api.request import Progress, ticking
from meshwright.errors import InputError, Message, NoAnswerError, fault

if TYPE_CHECKING:
    from meshwright.api.measuring.subject import Subject
    from meshwright.measure.chooser import Candidate

MOST, TOP_TUNED = 1000, 50
"""Layouts of a grid that are run without a budget; plans of a search that ``tune`` chooses from."""


def which(top: int) -> tuple[Field, ...]:
    """The options that name layouts; ``top``: how many of the search where none is given."""
    return (
        Field(name="top", parse=numbers.count, metavar="K", panel="Which layouts", in_file=False,
              help=f"The first K plans of the search [default: {top}]."),
        Field(name="layouts", metavar="FILE", panel="Which layouts", in_file=False,
              help="Those of a file: a label on each line, or the document of plan --json."),
        Field(name="grid", kind="flag", panel="Which layouts", in_file=False,
              help="Every layout of the grid that fits, the fastest first; --pin narrows it."),
    )


def check_which(values: Values, faults: Faults) -> None:
    """Options that do not go together."""
    ways = [f"--{name}" for name in ("top", "layouts", "grid") if values.get(name)]
    if len(ways) > 1:
        faults.add("sweep.which", "{ways} name different layouts: one of them", path=ways[0], ways=ways)
    if "layouts" in values and values["pin"]:
        faults.add("sweep.pin", "narrows a search, and --layouts names the layouts themselves", path="--pin")


def candidates_of(
    given: Subject, values: Values, faults: Faults, progress: Progress | None, *, top: int
) -> list[Candidate]:
    """The layouts that are to be run, with their predictions, in the order in which they are.

    Errors:  ``InputError`` with every fault of a file of layouts; ``NoAnswerError`` where none fits.
    """
    from meshwright import search

    pins = consistent(values["pin"], faults)
    faults.check()
    if "layouts" in values:
        layouts = [given.read(label) for label in _labels(given, values["layouts"])]
    elif values["grid"]:
        from meshwright.search.listing import listed

        every, fitting = listed(given.case, given.features, given.runner, pins, MOST)
        if fitting > MOST and "trials" not in values:
            raise fault("sweep.grid", "{fitting:,} layouts of the grid fit: narrow it by --pin, or say --trials", path="--grid",
                        fitting=fitting)
        layouts = [layout for layout, _, _ in every]
    else:
        options = search.SearchOptions(top=values.get("top", top), pins=pins)
        result = search.plan(given.case, given.features, options, progress=ticking(progress, "layouts"), runner=given.runner)
        if result.refused:
            raise NoAnswerError(Message("sweep.refused", "{title} runs none of the best {asked:,} layouts that fit",
                                        {"title": given.title, "asked": result.refused}))
        layouts = [plan.layout for plan in result.plans]
    if not layouts:
        raise NoAnswerError(Message("sweep.none", "no layout of {model} fits the memory of {devices} x {device}", {
            "model": given.case.model.name, "devices": given.case.cluster.num_devices, "device": given.case.cluster.device.name}))
    found = list({each.label: each for each in map(given.candidate, layouts)}.values())  # a file may name a layout twice
    if given.template is not None:
        given.template.check(given.case, found)
    return found


def _labels(given: Subject, path: str) -> list[str]:
    """The labels of a file; what is wrong with any of them is said with its line.

    Errors:  ``InputError`` with every fault.
    """
    from meshwright.readers.safe import parse_json, read_text

    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        document = parse_json(text, path)
        plans = document.get("plans") if isinstance(document, dict) else document
        said = [each.get("label") if isinstance(each, dict) else each for each in plans] if isinstance(plans, list) else []
        lines = [(f"{path}: plan {number}", label) for number, label in enumerate(said, 1)]
    else:
        lines = [(f"{path}:{number}", line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    faults = Faults()
    labels = []
    for where, label in lines:
        if label == "":
            continue
        if not isinstance(label, str):
            faults.add("sweep.label", "is no label of a layout", path=where)
            continue
        try:
            if reason := given.refused(given.read(label)):
                faults.add("layout.refused", "{label!r}: {reason}", path=where, label=label, reason=reason)
        except InputError as error:
            faults.note(replace(each, path=where) for each in error.messages)
        labels.append(label)
    faults.check()
    if not labels:
        raise fault("sweep.empty", "names no layout", path=path)
    return labels
