"""``rehearse``: profile this machine, plan a small model for it, run the layouts, and compare."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.machine_options import BACKEND, COMPILE, SHRINK, backend, small_model
from meshwright.api.renderers import render
from meshwright.api.request import INTERRUPTED, Answer, Progress, Request
from meshwright.outputs import SEAL, Output, files_in, obstacles, sealed, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.model import Model
    from meshwright.engine.request import Options
    from meshwright.measure.rehearse.rehearsal import Rehearsal

_LOOP, _MODEL = "Closed loop", "Model"
DEFAULTS: dict[str, Any] = {"layouts": 12, "rounds": 5, "step_seconds": 1.0}
QUICK: dict[str, Any] = {"layouts": 6, "rounds": 2, "step_seconds": 0.3}


class RehearseRequest(Request, frozen=True, kw_only=True):
    """How many ranks, which model, how long, and where it is kept."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="ranks", parse=numbers.count, kind="many", metavar="N", panel=_LOOP, in_file=False,
              help="Processes to plan for, repeatable [default: 2 and 4 on processors, all devices on accelerators]."),
        Field(name="cluster", metavar="NAME|FILE", panel=_LOOP, in_file=False,
              help="A cluster file of meshwright profile, or a name of the catalogue; nothing is profiled then."),
        Field(name="layouts", parse=numbers.count, metavar="N", panel=_LOOP, in_file=False,
              help="How many layouts are run [default: 12; quick: 6]."),
        Field(name="rounds", parse=numbers.count, metavar="N", panel=_LOOP, in_file=False,
              help="How often each is run, in fresh ranks [default: 5; quick: 2]."),
        Field(name="steps", parse=numbers.count, metavar="N", panel=_LOOP, in_file=False,
              help="Measured steps of a run [default: 3]."),
        Field(name="step_seconds", parse=numbers.positive, metavar="S", panel=_LOOP, in_file=False,
              help="The small model is so large that its step is predicted to take about so long [default: 1; quick: 0.3]."),
        Field(name="quick", kind="flag", panel=_LOOP, in_file=False, help="A shorter profile, fewer layouts and rounds."),
        BACKEND, COMPILE,
        Field(name="model", metavar="MODEL", panel=_MODEL, in_file=False,
              help="A model of the catalogue or a file, cut down by the options below [default: a small decoder]."),
        *SHRINK,
        Field(name="global_batch", parse=numbers.count, metavar="N", panel=_MODEL, in_file=False,
              help="Sequences a step, with --model."),
        Field(name="sequence", parse=numbers.sequence, metavar="TOKENS", panel=_MODEL, in_file=False,
              help="Tokens of a sequence, with --model."),
        Field(name="precision", metavar="NAME", panel=_MODEL, in_file=False, help="Precision of the products [default: bf16]."),
        Field(name="out", metavar="DIR", panel="Output", in_file=False,
              help="Keep profile, runs, tables and pictures there; called again, what is done is not done again."),
        Field(name="force", kind="flag", panel="Output", in_file=False,
              help="Replace tables and pictures there that were changed."),
    )

    ranks: Sequence[int | str] = ()
    cluster: str | Path | Cluster | None = None
    layouts: int | str | None = None
    rounds: int | str | None = None
    steps: int | str | None = None
    step_seconds: float | str | None = None
    quick: bool = False
    backend: str | None = None
    compile: bool = False
    model: str | Path | Model | None = None
    layers: int | str | None = None
    hidden: int | str | None = None
    experts: int | str | None = None
    vocabulary: int | str | None = None
    global_batch: int | str | None = None
    sequence: int | str | None = None
    precision: str | None = None
    out: str | Path | None = None
    force: bool = False


class RehearseAnswer(Answer, frozen=True, kw_only=True):
    """Every loop as its document: measured beside predicted."""

    machine: str
    rehearsals: tuple[dict[str, Any], ...]

    @property
    def status(self) -> int:
        """Interrupted where a loop is not complete; a no where nothing could be scored."""
        if not all(view["complete"] for view in self.rehearsals):
            return INTERRUPTED
        return int(all(view["scores"] is None for view in self.rehearsals))

    @property
    def ok(self) -> bool:
        """Whether every loop is complete and something was scored."""
        return self.status == 0

    def to_json(self) -> dict[str, Any]:
        """The document of ``rehearse --json``."""
        return {"machine": self.machine, "rehearsals": list(self.rehearsals)}


@door
def rehearse(
    request: RehearseRequest, *, progress: Progress | None = None, each: Callable[[dict[str, Any]], None] | None = None
) -> RehearseAnswer:
    """The whole loop for every number of ranks; ``each`` is called with the document of one when it is done.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` without torch.
    """
    from meshwright.api.views.rehearse import rehearsal_view
    from meshwright.engine.launch import require_torch
    from meshwright.measure.here import machine_name

    faults = Faults()
    values = request.read(faults)
    with faults:
        require_torch()
    _check(values, faults)
    options = _options(values)
    machine = machine_name(options.backend)
    views: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(values.get("out") or stack.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-rehearse-")))
        for name, result in _rehearsals(values, options, folder, machine, progress):
            views.append(rehearsal_view(result))
            if "out" in values:
                _keep(folder / name, views[-1], force=values["force"])
            if each is not None:
                each(views[-1])
            if not result.complete:
                break
    return RehearseAnswer(machine=machine, rehearsals=tuple(views))


def _rehearsals(
    values: Values, options: Options, folder: Path, machine: str, tick: Progress | None
) -> Iterator[tuple[str, Rehearsal]]:
    """Every number of ranks, and every case of it, by the name that its files have."""
    from meshwright.engine.nursery import Nursery
    from meshwright.measure.here import by_catalogue
    from meshwright.measure.rehearse.rehearsal import rehearsed
    from meshwright.measure.rehearse.rounds import real
    from meshwright.measure.rehearse.store import Store

    chosen = DEFAULTS | (QUICK if values["quick"] else {}) | dict(values)
    with ExitStack() as stack:
        every = _ranks(values, options)
        store = Store(folder / "runs.jsonl", machine)
        runner = real(stack.enter_context(Nursery()).start if options.backend == "cpu" else None)
        for ranks in every:
            cluster = _cluster(values, options, folder, ranks, tick)
            several = _cases(values, cluster, chosen["step_seconds"])
            for number, case in enumerate(several, start=1):
                result = rehearsed(
                    case, by_catalogue(options.backend, ranks), options, layouts=-(-chosen["layouts"] // len(several)),
                    rounds=chosen["rounds"], store=store, runner=runner, tick=tick,
                )
                yield f"rehearsal-{ranks}{f'-{number}' if len(several) > 1 else ''}", result


def _check(values: Values, faults: Faults) -> None:
    """Everything that is wrong with the options, before anything is measured."""
    from meshwright.catalog import load_cluster
    from meshwright.catalog import precision as precision_named
    from meshwright.catalog.sheets import looks_like_path
    from meshwright.engine.run import check_recipe
    from meshwright.measure.rehearse.rehearsal import check_ranks

    for ranks in values["ranks"]:
        with faults.at("ranks"):
            check_ranks(ranks)
    if "out" in values:
        tables = files_in(values["out"], "rehearsal-*.*")
        faults.messages += obstacles(tables, folder=values["out"], force=values["force"], fresh=True)
    with faults.at("model"):
        if "model" in values:
            small_model(values)
    with faults.at("cluster"):
        if "cluster" in values and looks_like_path(str(values["cluster"])):
            load_cluster(values["cluster"])
    with faults.at("precision"):
        check_recipe(precision_named(values.get("precision", "bf16")))
    given = set(values) | faults.failed
    if "model" in given:
        for name in ("global_batch", "sequence"):
            if name not in given:
                faults.add("rehearse.batch", "--model needs {option}", option=f"--{name.replace('_', '-')}")
    else:
        for name in ("layers", "hidden", "experts", "vocabulary", "global_batch", "sequence"):
            if name in given:
                faults.add("rehearse.model", "{option} needs --model", option=f"--{name.replace('_', '-')}")
    faults.check()


def _options(values: Values) -> Options:
    from meshwright.engine.request import Options

    return Options(
        backend=backend(values), steps=values.get("steps", 3), warmup_steps=3 if values["compile"] else 1, saved=False,
        compiled=values["compile"],
    )


def _ranks(values: Values, options: Options) -> list[int]:
    """Numbers of ranks, each once; more than there are accelerators are refused."""
    from meshwright.engine.devices import count_devices
    from meshwright.measure.here import check_devices

    ranks = list(dict.fromkeys(values["ranks"])) or ([2, 4] if options.backend == "cpu" else [count_devices()])
    for each in ranks:
        check_devices(each, options.backend)
    return ranks


def _cluster(values: Values, options: Options, folder: Path, ranks: int, tick: Progress | None) -> Cluster:
    """The cluster file that is given, or this machine's profile."""
    from meshwright.measure.here import by_file, by_profile

    if "cluster" in values:
        return by_file(values["cluster"], options.backend, ranks)
    return by_profile(folder, options.backend, ranks, quick=values["quick"], write=_write_new, tick=tick)


def _cases(values: Values, cluster: Cluster, step_s: float) -> list[Case]:
    """The user's model, or decoders whose step takes about so long."""
    from meshwright.measure.reference import case_of
    from meshwright.measure.rehearse.small import cases

    precision = values.get("precision", "bf16")
    if "model" not in values:
        return cases(cluster, target_s=step_s, precision=precision)
    model = small_model(values)
    return [case_of(model, cluster, global_batch=values["global_batch"], sequence_tokens=values["sequence"], precision=precision)]


def _write_new(path: str, text: str) -> None:
    """The cluster file of a profile, in the folder of the rehearsal."""
    write([Output(path=path, text=text, folder=str(Path(path).parent))])


def _keep(name: Path, view: dict[str, Any], *, force: bool) -> None:
    """The table as JSON and as a picture, beside the runs; sealed, so that the next rehearsal may renew them."""
    drawn = render("rehearsal.svg", view).rstrip()
    texts = {"json": json.dumps({**view, "seal": SEAL}, indent=2) + "\n", "svg": f"{drawn}\n<!-- {SEAL} -->\n"}
    write([Output(path=f"{name}.{ending}", text=sealed(text), folder=str(name.parent)) for ending, text in texts.items()],
          force=force)
