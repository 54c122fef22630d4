"""``meshwright rehearse``: profile this machine, plan a small model for it, run the layouts, and compare."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.files import check_target, write_file
from meshwright.api.machine_options import BACKEND, COMPILE, SHRINK, backend, small_model
from meshwright.api.options import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster
    from meshwright.engine.request import Options
    from meshwright.measure.rehearsal import Rehearsal

    Tick = Callable[[str, float, float], None]

EPILOG = "Example: meshwright rehearse --ranks 2 --out rehearsal"
_LOOP, _MODEL = "Closed loop", "Model"
FIELDS = (
    Field(name="ranks", parse=numbers.count, kind="many", metavar="N", panel=_LOOP, in_file=False,
          help="Processes to plan for, repeatable [default: 2 and 4 on processors, all devices on accelerators]."),
    Field(name="cluster", metavar="NAME|FILE", panel=_LOOP, in_file=False,
          help="A cluster file of meshwright profile, or a name of the catalogue; nothing is profiled then."),
    Field(name="layouts", parse=numbers.count, metavar="N", panel=_LOOP, in_file=False,
          help="How many layouts are run [default: 12; quick: 6]."),
    Field(name="rounds", parse=numbers.count, metavar="N", panel=_LOOP, in_file=False,
          help="How often each is run, in fresh ranks [default: 5; quick: 2]."),
    Field(name="steps", parse=numbers.count, metavar="N", panel=_LOOP, in_file=False, help="Measured steps of a run [default: 3]."),
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
    JSON,
)
DEFAULTS: dict[str, Any] = {"layouts": 12, "rounds": 5, "step_seconds": 1.0}
INTERRUPTED = 130
QUICK: dict[str, Any] = {"layouts": 6, "rounds": 2, "step_seconds": 0.3}


def run(values: Values, faults: Faults) -> int:
    """The whole loop for every number of ranks, each shown when it is done."""
    from meshwright.api.views.rehearse import rehearsal_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.engine.launch import require_torch
    from meshwright.measure.here import machine_name
    from meshwright.report.rehearse import rehearsal_report

    _check(values, faults)
    require_torch()
    options = _options(values)
    machine = machine_name(options.backend)
    views: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(values.get("out") or stack.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-rehearse-")))
        for name, result in _rehearsals(values, options, folder, machine):
            views.append(rehearsal_view(result))
            if "out" in values:
                _keep(folder / name, views[-1])
            if not values["json"]:
                print_report(rehearsal_report(views[-1]))
            if not result.complete:
                break
    if values["json"]:
        print_json({"machine": machine, "rehearsals": views})
    if not all(view["complete"] for view in views):
        return INTERRUPTED
    return int(all(view["scores"] is None for view in views))


def _rehearsals(values: Values, options: Options, folder: Path, machine: str) -> Iterator[tuple[str, Rehearsal]]:
    """Every number of ranks, and every case of it, by the name that its files have."""
    from meshwright.cli.output import stages
    from meshwright.engine.nursery import Nursery
    from meshwright.measure.here import by_catalogue
    from meshwright.measure.rehearsal import rehearsed
    from meshwright.measure.rounds import real
    from meshwright.measure.store import Store

    chosen = DEFAULTS | (QUICK if values["quick"] else {}) | dict(values)
    with ExitStack() as stack:
        every = _ranks(values, options)
        store = Store(folder / "runs.jsonl", machine)
        runner = real(stack.enter_context(Nursery()).start if options.backend == "cpu" else None)
        for ranks in every:
            with stages() as tick:
                cluster = _cluster(values, options, folder, ranks, tick)
            several = _cases(values, cluster, chosen["step_seconds"])
            for number, case in enumerate(several, start=1):
                with stages() as tick:
                    result = rehearsed(
                        case, by_catalogue(options.backend, ranks), options, layouts=-(-chosen["layouts"] // len(several)),
                        rounds=chosen["rounds"], store=store, runner=runner, tick=tick,
                    )
                yield f"rehearsal-{ranks}{f'-{number}' if len(several) > 1 else ''}", result


def _check(values: Values, faults: Faults) -> None:
    """Everything that is wrong with the options, before anything is measured."""
    from meshwright import catalog
    from meshwright.engine.run import check_recipe
    from meshwright.measure.rehearsal import check_ranks

    for ranks in values["ranks"]:
        with faults:
            check_ranks(ranks)
    if "out" in values:
        faults.messages += check_target(values["out"])
    with faults:
        if "model" in values:
            small_model(values)
    with faults:
        check_recipe(catalog.precision(values.get("precision", "bf16")))
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


def _cluster(values: Values, options: Options, folder: Path, ranks: int, tick: Tick | None) -> Cluster:
    """The cluster file that is given, or this machine's profile."""
    from meshwright.measure.here import by_file, by_profile

    if "cluster" in values:
        return by_file(values["cluster"], options.backend, ranks)
    return by_profile(folder, options.backend, ranks, quick=values["quick"], write=write_file, tick=tick)


def _cases(values: Values, cluster: Cluster, step_s: float) -> list[Case]:
    """The user's model, or decoders whose step takes about so long."""
    from meshwright.measure.reference import case_of
    from meshwright.measure.small import cases

    precision = values.get("precision", "bf16")
    if "model" not in values:
        return cases(cluster, target_s=step_s, precision=precision)
    model = small_model(values)
    return [case_of(model, cluster, global_batch=values["global_batch"], sequence_tokens=values["sequence"], precision=precision)]


def _keep(name: Path, view: dict[str, Any]) -> None:
    """The table as JSON and as a picture, beside the runs."""
    from meshwright.report.rehearse_picture import picture

    write_file(f"{name}.json", json.dumps(view, indent=2) + "\n")
    write_file(f"{name}.svg", picture(view))
