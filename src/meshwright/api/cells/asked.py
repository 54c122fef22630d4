"""What an atlas is asked, checked before anything is searched: its cells, the runs that they stand beside, and its files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.cells.axes import MOST_CELLS
from meshwright.api.cells.kept import Kept
from meshwright.api.cells.measured import Measured, Wanted, measured, under
from meshwright.api.cells.question import Question, drafts, of_runs, of_setup, of_subject
from meshwright.api.cells.sizes import model_of
from meshwright.api.pins import consistent
from meshwright.errors import Message, fault, nearest
from meshwright.outputs import obstacles
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.cases import Setup
    from meshwright.api.fields import Faults, Values
    from meshwright.domain.model import Model
    from meshwright.domain.training import Batch
    from meshwright.evidence.rows.row import Row
    from meshwright.search.result import SearchOptions

SHIPPED, FAMILY, KINDS = "shipped", "playbook", ("html", "svg", "png", "csv")
_PREDICTED_ONLY = ("coarse", "keep", "pin", "objective", "risk", "no_balance", "jobs")


class Asked(Value, frozen=True, kw_only=True):
    """An atlas before it is filled."""

    request: Mapping[str, Any]
    questions: tuple[Question, ...]
    """Of predicted cells, row by row."""
    measured: tuple[Measured, ...]
    """Those that stand in the atlas; beside predictions those of its cells."""
    difference: bool
    coarse: bool
    kept: Kept
    files: Mapping[str, str]
    """Path -> kind of what is written there."""
    inputs: tuple[str, ...]
    force: bool
    jobs: int | None = None
    """Processes that search; None: as many as pay."""
    notes: tuple[Message, ...] = ()


def asked_of(values: Values, faults: Faults) -> Asked:
    """What the options ask.

    Errors:  ``InputError`` with every fault of them, those found before among them.
    """
    from_runs = [name for name in ("csv", "store") if name in values]
    predicts = not from_runs or values["difference"]
    _check_words(values, from_runs, faults)
    kept = Kept(None)
    inputs = [values[name] for name in ("csv", "store", "template", "cluster", "calibration", "request", "lengths")
              if isinstance(values.get(name), str)]
    inputs += [each for each in values["models"] if isinstance(each, str)]
    with faults.at("keep"):
        kept = Kept(values.get("keep"))
    wanted = [*values["out"], *([str(values["html"])] if "html" in values else [])]
    own = kept.own(wanted)
    fresh = [each for each in wanted if each not in own]
    read = [*inputs, *([values["keep"]] if "keep" in values else [])]
    faults.note(obstacles(fresh, inputs=read, force=values["force"], fresh=True))
    options = _options(values, faults)
    models = _models(values, faults)
    _check_count(len(models), max(1, len(values["nodes"]) or len(values["devices"])), faults)
    if (predicts and (models or not from_runs)) or "store" in values:
        questions, found, notes = _of_request(values, models, options, faults)
    else:
        faults.check()
        found = measured(_table(values, faults), _wanted(values, faults))
        faults.check()
        _check_some(found, values)
        asked = [of_runs(each, options) for each in found] if predicts else []
        questions, notes = [each for each in asked if each is not None], []
    faults.check()
    if not predicts:
        questions = []
    _check_count(len(found) + len(questions), 1, faults)
    faults.check()
    return Asked(
        request=_said(values), questions=tuple(questions), measured=tuple(found), difference=values["difference"],
        coarse=values["coarse"], kept=kept, files=_files(values), inputs=tuple(inputs), force=values["force"],
        jobs=values.get("jobs"),
        notes=tuple(notes),
    )


def _files(values: Values) -> dict[str, str]:
    """Path -> kind of the files that are wanted."""
    files = {path: _kind(path) for path in values["out"]}
    return files | ({str(values["html"]): "html"} if "html" in values else {})


def _kind(path: str) -> str:
    return Path(path).suffix.lower().removeprefix(".")


def _check_words(values: Values, from_runs: Sequence[str], faults: Faults) -> None:
    """Options that contradict each other, and files whose kind nobody writes."""
    if len(from_runs) > 1:
        faults.add("atlas.two", "--csv and --store contradict each other: one of them")
    if values["difference"] and not from_runs:
        faults.add("atlas.difference", "--difference needs measured runs: --csv FILE, --csv shipped or --store FILE.db")
    if from_runs and not values["difference"]:
        for name in (*_PREDICTED_ONLY, *(("layers", "launch") if "csv" in values else ())):
            if values.get(name):
                option = f"--{name.replace('_', '-')}"
                faults.add("atlas.measured", "{option} is for predictions: leave it out, or add --difference", option=option)
    if from_runs and values.get("lengths"):
        faults.add("atlas.lengths", "--lengths is for predictions alone: measured runs do not say their samples", path="--lengths")
    for name in ("template", "reference"):
        if values.get(name) and "store" not in values:
            faults.add("atlas.program", "--{name} says what the trials of --store ran", name=name)
    if values["nodes"] and values["devices"]:
        faults.add("atlas.axis", "--nodes and --devices contradict each other: one of them")
    if "family" in values and not values["sizes"]:
        faults.add("atlas.family", "--family needs --sizes")
    for path in values["out"]:
        kind = _kind(path)
        if kind not in KINDS:
            faults.add("atlas.kind", "an atlas is written as {kinds}, by the end of its name{hint}", path=path,
                       kinds=[f".{each}" for each in KINDS], hint=nearest(kind, KINDS).partition("; known")[0] if kind else "")
        elif kind == "png" and find_spec("PIL") is None:
            faults.add("atlas.png", "a .png needs Pillow, which is not installed: pip install 'meshwright[png]', or name an .svg",
                       path=path)
    if "store" in values:
        from meshwright.api.cells.stores import check_store

        with faults.at("store"):
            check_store(values["store"])


def _options(values: Values, faults: Faults) -> SearchOptions:
    from meshwright.search.result import SearchOptions

    pins = consistent(values["pin"], faults)
    wanted = {name: values[name] for name in ("objective", "risk") if name in values}
    return SearchOptions(pins=pins, balance=not values["no_balance"], **wanted)


def _models(values: Values, faults: Faults) -> list[tuple[str, str | Model]]:
    """Name of each row, and what is loaded for it."""
    from meshwright.domain.model import Model

    found: list[tuple[str, str | Model]] = [
        (each.name if isinstance(each, Model) else each, each) for each in values["models"]
    ]
    for word in values["sizes"]:
        with faults.at("sizes" if "family" not in values else "family"):
            model = model_of(word, values.get("family", FAMILY))
            found.append((model.name, model))
    return found


def _check_count(models: int, sizes: int, faults: Faults) -> None:
    if models * sizes > MOST_CELLS:
        words = "{cells:,} cells; an atlas has at most {limit:,}: ask for fewer models or sizes, or narrow the runs"
        faults.add("atlas.cells", words, cells=models * sizes, limit=MOST_CELLS)
        faults.check()


def _of_request(
    values: Values, models: Sequence[tuple[str, str | Model]], options: SearchOptions, faults: Faults
) -> tuple[list[Question], list[Measured], list[Message]]:
    """The cells that models and sizes make, and the runs of them where runs are named."""
    if not models:
        faults.add("atlas.models", "no cells: --models A,B or --sizes 1b,8b is missing")
    sizes = [("nodes", each) for each in values["nodes"]] or [("devices", each) for each in values["devices"]]
    given = {**values, "reference": False} if not values.get("reference") else dict(values)
    for name in ("models", "sizes", "nodes", "devices", "jobs"):
        given.pop(name, None)
    if "store" in values:
        return _of_store(given, models, sizes, options, faults)
    if not models:  # what else is missing is said, too
        models = [("", "llama3-8b")]
    setups = list(drafts(given, models, sizes, faults))
    faults.check()
    _trains(values, setups, faults)
    batches = _batches(setups[0][1], values) if setups else ()
    questions = [of_setup(series, setup, options, batches) for series, setup in setups]
    if "csv" not in values:
        return questions, [], []
    found = measured(_table(values, faults), _wanted(values, faults, named=False))
    faults.check()
    placed, left = _placed(questions, found)
    notes = [Message("atlas.other-runs", "{number} cells of measured runs are of other cases, and are left out", {"number": left})]
    return questions, placed, notes if left else []


def _batches(given: Setup, values: Values) -> tuple[Batch, ...]:
    """The packs that samples may be in, where that is searched: the same for all cells, whose samples are the same."""
    from meshwright.api.packed_search import any_packs, ways

    return tuple(given.packed(*way).case.batch for way in ways(given)) if any_packs(given, values) else ()


def _trains(values: Values, setups: Sequence[tuple[str, Setup]], faults: Faults) -> None:
    """A task that the framework does not train is a fault, not a cell."""
    from meshwright.frameworks import framework, frameworks

    for _, setup in setups[:1]:
        task = setup.case.training.task
        if "framework" in values and task not in setup.framework.features.tasks:
            able = [name for name in frameworks() if task in framework(name).features.tasks]
            faults.add("plan.task", "{name} does not train with {task}; {able} can", path="--framework", name=setup.framework.title,
                       task=task, able=able)
    faults.check()


def _of_store(
    values: Mapping[str, Any], models: Sequence[tuple[str, str | Model]], sizes: Sequence[tuple[str, int]], options: SearchOptions,
    faults: Faults,
) -> tuple[list[Question], list[Measured], list[Message]]:
    """The cases that trials of a store may be of, and what they came to."""
    from meshwright.api.cells.stores import rows_of_store
    from meshwright.api.measuring.subject import subject

    faults.check()
    subjects = []
    for series, model in models:
        for name, number in sizes or (("", 0),):
            subjects.append((series, subject({**values, "model": model, **({name: number} if name else {})}, faults)))
            faults.check()
    rows, others = rows_of_store(values["store"], [given for _, given in subjects])
    questions = [of_subject(series, given, options) for series, given in subjects]
    placed, _ = _placed(questions, measured(rows, Wanted()))
    notes = [Message("atlas.other-trials", "{number} trials of {store} are of other cases, and are left out",
                     {"number": others, "store": Path(values["store"]).name})]
    if not placed:
        words = "has no trial of these cases; it has {others} of others"
        raise fault("atlas.no-trials", words, path=values["store"], others=others)
    return questions, placed, notes if others else []


def _placed(questions: Sequence[Question], found: Sequence[Measured]) -> tuple[list[Measured], int]:
    """Measured cells in the rows of the cases that they answer, and how many answer none; of several the fastest."""
    from meshwright.api.cells.measured import answers

    placed: dict[tuple[str, str, int], Measured] = {}
    for question in questions:
        own = [each for each in found if answers(each, question.case)]
        if own:
            best = max(own, key=lambda each: each.cell.tokens_per_s_per_device or 0.0)
            placed[question.place] = under(best, question.series)
    used = {each.best.id for each in placed.values()}
    return list(placed.values()), sum(each.best.id not in used for each in found)


def _table(values: Values, faults: Faults) -> list[Row]:
    """Rows of the table that is named."""
    from meshwright.evidence.rows.table import count_reasons, left_out, nothing_usable, read_table, shipped_table

    with faults.at("csv"):
        table = shipped_table() if values["csv"] == SHIPPED else read_table(values["csv"])
        if not table.rows:
            raise nothing_usable("atlas.rows", table.path, count_reasons(table.skipped), left_out(table.skipped))
        return list(table.rows)
    return []


def _wanted(values: Values, faults: Faults, *, named: bool = True) -> Wanted:
    """Which rows count. ``named``: models are names of rows, and not of this program."""
    from meshwright.catalog import device, load_cluster
    from meshwright.frameworks import framework

    family, kind, recipe = None, None, values.get("precision")
    with faults.at("framework"):
        if "framework" in values:
            from meshwright.catalog.implementations import implementation

            family = implementation(framework(values["framework"]).implementation).family
    with faults.at("device"):
        kind = device(values["device"]).name if "device" in values else None
    with faults.at("cluster"):
        kind = load_cluster(values["cluster"]).device.name if "cluster" in values else kind
    with faults.at("precision"):
        if recipe is not None:
            from meshwright.catalog.recipes import precision

            recipe = precision(recipe).name
    return Wanted(
        models=tuple(str(each) for each in values["models"]) if named else (), family=family, device=kind,
        devices=values["devices"], nodes=values["nodes"], global_batch=values.get("global_batch"), sequence=values.get("sequence"),
        precision=recipe, task=values.get("task"),
    )


def _check_some(found: Sequence[Measured], values: Values) -> None:
    if not found:
        raise fault("atlas.no-runs", "no cells: no run of {table} is of what the options name", table=values["csv"])


def _said(values: Values) -> dict[str, Any]:
    """The request as it can be said again."""
    from meshwright.domain.model import Model

    kept = {name: value for name, value in values.items() if name not in {"force", "json", "html", "jobs"}}
    kept["models"] = [each.name if isinstance(each, Model) else each for each in values["models"]]
    kept["pin"] = [f"{knob}={value}" for knob, value in values["pin"]]
    plain = (str, int, float, list, tuple)
    return {name: value if isinstance(value, plain) else str(value) for name, value in kept.items() if value}
