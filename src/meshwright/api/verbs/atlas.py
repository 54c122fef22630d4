"""``atlas``: the best plan of every model on every number of nodes, predicted, measured, or both beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.cells import axes
from meshwright.api.cells.sizes import size
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import CASE, HTML, PLAN
from meshwright.api.request import Answer, Progress, Request
from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from meshwright.api.cells.asked import Asked
    from meshwright.api.cells.cell import Cell
    from meshwright.api.cells.difference import Difference
    from meshwright.api.cells.filling import Filled
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.model import Model

Told = Callable[["AtlasAnswer"], None]
FAMILY = "playbook"
INTERRUPTED = 130
_AXES, _FROM, _OUTPUT = "Axes", "Where cells come from", "Output"
_CASE = (
    "layers", "request", "cluster", "device", "devices_per_node", "global_batch", "sequence", "lengths", "max_tokens", "packs",
    "split_long", "task", "precision", "optimizer",
    "gradient_dtype", "framework", "implementation", "launch", "calibration", "flops_convention", "max_memory_ratio",
    "reserve_memory_ratio",
)
_PLAN = ("objective", "pin", "risk", "no_balance")


class AtlasRequest(Request, frozen=True, kw_only=True):
    """Models, numbers of nodes and what they share; and where the cells come from."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="models", kind="many", metavar="A,B", panel=_AXES, in_file=False,
              help="Models by name or file, repeatable; of measured runs their names."),
        Field(name="sizes", kind="many", metavar="1b,8b", panel=_AXES, in_file=False,
              help="Models of these sizes, in shapes of --family (docs/atlas.md)."),
        Field(name="family", metavar="NAME", panel=_AXES, in_file=False,
              help=f"Shapes of --sizes: playbook, llama3 [default: {FAMILY}]."),
        Field(name="nodes", kind="many", parse=axes.numbers, metavar="1,2,4..64", panel=_AXES, in_file=False,
              help="Numbers of nodes: 4..64 doubles, 8..32+8 goes in steps of 8."),
        Field(name="devices", kind="many", parse=axes.numbers, metavar="1,2,4..64", panel=_AXES, in_file=False,
              help="Numbers of devices, instead of nodes."),
        *(each for each in CASE if each.name in _CASE),
        *(each for each in PLAN if each.name in _PLAN),
        Field(name="csv", metavar="FILE|shipped", panel=_FROM, in_file=False,
              help="The best measured run of each cell, of a table in the corpus' schema, or of the corpus that ships."),
        Field(name="store", metavar="FILE.db", panel=_FROM, in_file=False,
              help="The same of the trials of a sweep's store; the options say which cases they are of."),
        Field(name="template", metavar="FILE", panel=_FROM, in_file=False, help="The script that the trials of --store ran."),
        Field(name="reference", kind="flag", panel=_FROM, in_file=False, help="The trials of --store ran the reference step."),
        Field(name="difference", kind="flag", panel=_FROM, in_file=False,
              help="Predicted beside measured: is what is predicted to be best what measured best, and how far off?"),
        Field(name="coarse", kind="flag", panel=_FROM, in_file=False,
              help="Stop after the first pass: the grid of layouts alone, marked as such."),
        Field(name="keep", metavar="FILE", panel=_FROM, in_file=False,
              help="Keep cells there as they are found; called again, what is there is not searched again."),
        Field(name="jobs", parse=numbers.count, metavar="N", panel=_FROM, in_file=False,
              help="Processes that search [default: as many as pay, at most 4 and the processors]."),
        Field(name="out", kind="many", metavar="FILE.html|svg|png|csv", panel=_OUTPUT, in_file=False,
              help="Write the atlas, repeatable: to look at, for a paper, or as a table."),
        HTML,
        Field(name="force", kind="flag", panel=_OUTPUT, in_file=False, help="Replace files of --out and --html that exist."),
    )

    models: Sequence[str | Model] = ()
    sizes: Sequence[str] = ()
    family: str | None = None
    nodes: Sequence[int | str] = ()
    devices: Sequence[int | str] = ()
    layers: int | str | None = None
    request: str | Path | None = None
    """YAML of options, or a saved plan: its model and nodes stand where none are named."""
    cluster: str | Path | Cluster | None = None
    device: str | None = None
    devices_per_node: int | str | None = None
    global_batch: int | str | None = None
    sequence: int | str | None = None
    lengths: str | Path | None = None
    """Lengths of samples, which are packed: each cell takes the packs that ``plan`` takes."""
    max_tokens: int | str | None = None
    packs: int | str | None = None
    split_long: bool = False
    task: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    gradient_dtype: str | None = None
    framework: str | None = None
    implementation: str | None = None
    launch: str | None = None
    calibration: str | Path | None = None
    flops_convention: str | None = None
    max_memory_ratio: float | str | None = None
    reserve_memory_ratio: float | str | None = None
    objective: str | None = None
    pin: Mapping[str, object] | Sequence[str] = ()
    risk: str | None = None
    no_balance: bool = False
    csv: str | Path | None = None
    """A table of measured runs, or ``shipped``."""
    store: str | Path | None = None
    template: str | Path | None = None
    reference: bool = False
    difference: bool = False
    coarse: bool = False
    keep: str | Path | None = None
    jobs: int | str | None = None
    out: Sequence[str | Path] = ()
    html: str | Path | None = None
    """The same as ``out`` of such a file, whatever it is called."""
    force: bool = False


class AtlasAnswer(Answer, frozen=True, kw_only=True):
    """Cells, and what they come to."""

    request: Mapping[str, Any]
    cells: tuple[Cell, ...]
    """Row by row, from few devices to many; of both sources the predicted ones first."""
    differences: tuple[Difference, ...] | None = None
    missing: int = 0
    """Cells that were not come to."""
    interrupted: bool = False
    notes: tuple[Message, ...] = ()
    saved: tuple[str, ...] = ()
    unsaved: Message | None = None
    """Why the files could not be written: no reason to lose what was searched."""

    @property
    def ok(self) -> bool:
        """Whether any cell has a layout."""
        return any(each.label is not None for each in self.cells)

    @property
    def status(self) -> int:
        """2 where files could not be written; interrupted; a no where no cell has a layout."""
        if self.unsaved is not None:
            return 2
        return INTERRUPTED if self.interrupted else int(not self.ok)

    @property
    def refusal(self) -> Message | None:
        """Why the files could not be written."""
        return self.unsaved

    def to_json(self) -> dict[str, Any]:
        """The document of ``atlas --json``."""
        from meshwright.api.views.atlas import atlas_view

        view = atlas_view(
            self.request, self.cells, self.differences, missing=self.missing, interrupted=self.interrupted,
            notes=[each.words for each in self.notes],
        )
        return view | ({"saved": list(self.saved)} if self.saved else {})


@door
def atlas(request: AtlasRequest, *, progress: Progress | None = None, told: Told | None = None) -> AtlasAnswer:
    """Fill the cells: coarsely first, then, one by one, with what ``plan`` lists first.

    ``told`` is called with the coarse atlas as soon as there is one, its files written. An interrupt ends the refinement and not
    the answer: what is there is written and said.

    Errors:  ``InputError`` with every fault of the request.
    """
    from meshwright.api.cells.asked import asked_of
    from meshwright.api.cells.filling import filled

    faults = Faults()
    values = _read(request, faults)
    asked = asked_of(values, faults)

    def coarse(found: Filled) -> None:
        first = _written(asked, _answer(request, asked, found))
        if told is not None:
            told(first)

    return _written(asked, _answer(request, asked, filled(asked, progress=progress, told=coarse)))


def _answer(request: AtlasRequest, asked: Asked, found: Filled) -> AtlasAnswer:
    return AtlasAnswer(
        asked=request, request=asked.request, cells=found.cells, differences=found.differences, missing=found.missing,
        interrupted=found.interrupted, notes=asked.notes,
    )


def _written(asked: Asked, answer: AtlasAnswer) -> AtlasAnswer:
    """The answer with its files written; those of an earlier moment are replaced while nobody has changed them."""
    if not asked.files:
        return answer
    from meshwright.outputs import Output, write

    contents = {path: _content(kind, answer) for path, kind in asked.files.items()}
    own = asked.kept.own(asked.files)
    force = asked.force or all(path in own or not Path(path).exists() for path in asked.files)
    with ExitStack() as held:
        outputs = []
        for path, content in contents.items():
            spool = held.enter_context(TemporaryFile())
            spool.write(content)
            outputs.append(Output(path=path, spool=spool))
        try:
            write(outputs, force=force, inputs=asked.inputs)
        except InputError as error:
            return replace(answer, unsaved=error.messages[0])
    asked.kept.wrote(contents)
    return replace(answer, saved=tuple(asked.files))


def _content(kind: str, answer: AtlasAnswer) -> bytes:
    """What a file of a kind holds."""
    from meshwright.api.renderers import render, render_bytes
    from meshwright.api.views.atlas import csv_of

    if kind == "html":
        return render("answer.html", answer).encode()
    view = answer.to_json()
    if kind == "csv":
        return csv_of(view).encode()
    drawn = render("atlas.svg", view)
    return render_bytes("picture.png", drawn) if kind == "png" else drawn.encode()


def _of_file(values: Values) -> Mapping[str, Any]:
    """What the request file says beside the fields of an atlas."""
    from meshwright.api.request_file import read_request_file

    where = values.get("request")
    if where is None:
        return {}
    return read_request_file(str(where), Faults())  # its faults were noted when its options were read


def _read(request: AtlasRequest, faults: Faults) -> Values:
    """The options, lists of lists as one list each."""
    held = replace(request, html=None) if request.html else request  # one that --keep knows as its own is not in the way
    values = dict(held.read(faults))
    values |= {"html": str(request.html)} if request.html else {}
    file = _of_file(values)
    values["models"] = axes.words(values["models"]) or ([str(file["model"])] if "model" in file and not values["sizes"] else [])
    sizes = []
    for word in axes.words(values["sizes"]):
        with faults.at("sizes"):
            sizes.append(size(str(word)))
    values["sizes"] = sizes
    for name in ("nodes", "devices"):
        values[name] = axes.together(values[name])
    values["out"] = [str(each) for each in values["out"]]
    return values

