"""``step``: the reference training step of one layout, run on this machine and measured."""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.machine_options import BACKEND, COMPILE, SHRINK, backend, small_model
from meshwright.api.options import CASE, LAYOUT
from meshwright.api.request import Answer, Progress, Request
from meshwright.errors import InputError, Message, NoAnswerError, fault
from meshwright.outputs import Output, files_in, obstacles, write

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.engine.report import StepReport
    from meshwright.engine.request import Options

_RUN = "Run"
_DEGREE = re.compile(r"(?:tp|cp|pp|dp)=?([0-9]{1,9})")
MAX_RANKS, MAX_RANKS_HERE = 1024, 64
"""Ranks of an allocation, and processes that are started on this machine."""


class StepRequest(Request, frozen=True, kw_only=True):
    """A model, cut down to this machine, and a layout of it."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        CASE[0], *SHRINK,
        Field(name="global_batch", parse=numbers.count, metavar="N", panel="Batch", in_file=False,
              help="Sequences per optimizer step."),
        Field(name="sequence", parse=numbers.sequence, metavar="TOKENS", panel="Batch", in_file=False,
              help="Tokens of a sequence."),
        Field(name="precision", metavar="NAME", panel="Batch", in_file=False, help="Precision of the products [default: bf16]."),
        LAYOUT,
        Field(name="cluster", metavar="NAME|FILE", panel="Cluster", in_file=False,
              help="A cluster file of meshwright profile, or a name of the catalogue: the estimate stands beside the run."),
        BACKEND, COMPILE,
        Field(name="steps", parse=numbers.count, metavar="N", panel=_RUN, in_file=False, help="Measured steps [default: 5]."),
        Field(name="warmup", parse=numbers.count_or_none, metavar="N", panel=_RUN, in_file=False,
              help="Steps before them that no figure counts [default: 2]."),
        Field(name="threads", parse=numbers.count, metavar="N", panel=_RUN, in_file=False,
              help="Threads of a rank on processors [default: 1]."),
        Field(name="packed", kind="flag", panel=_RUN, in_file=False,
              help="Sequences are packed documents that do not see each other."),
        Field(name="profiled", kind="flag", panel=_RUN, in_file=False,
              help="One step more under the profiler: exposed communication."),
        Field(name="trace", metavar="DIR", panel=_RUN, in_file=False,
              help="Kineto traces there, one of each rank; implies --profiled."),
        Field(name="record", metavar="DIR", panel=_RUN, in_file=False,
              help="What each rank notes of its steps and exchanges as they go, for meshwright diagnose: a folder of its own."),
        Field(name="save", metavar="FILE", panel="Output", in_file=False, help="Write the JSON document there."),
        Field(name="force", kind="flag", panel="Output", in_file=False, help="Replace the file and the traces where they exist."),
    )

    model: str | Path | Model | None = None
    layers: int | str | None = None
    hidden: int | str | None = None
    experts: int | str | None = None
    vocabulary: int | str | None = None
    global_batch: int | str | None = None
    sequence: int | str | None = None
    precision: str | None = None
    layout: str | None = None
    cluster: str | Path | Cluster | None = None
    backend: str | None = None
    compile: bool = False
    steps: int | str | None = None
    warmup: int | str | None = None
    threads: int | str | None = None
    packed: bool = False
    profiled: bool = False
    trace: str | Path | None = None
    record: str | Path | None = None
    save: str | Path | None = None
    force: bool = False


class StepAnswer(Answer, frozen=True, kw_only=True):
    """What was measured, as its document."""

    document: dict[str, Any]
    unsaved: Message | None = None
    """Why the document could not be written: no reason to lose a run."""

    @property
    def status(self) -> int:
        """2 where the document could not be written."""
        return 0 if self.unsaved is None else 2

    @property
    def refusal(self) -> Message | None:
        """Why the document could not be written."""
        return self.unsaved

    def to_json(self) -> dict[str, Any]:
        """The document of ``step --json``."""
        return self.document


@door
def step(request: StepRequest, *, progress: Progress | None = None) -> StepAnswer | None:
    """Run it, or join ranks that are started; None on those beside the first.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` without torch, devices or memory.
    """
    from meshwright.api.views.step import step_view
    from meshwright.engine.launch import require_torch
    from meshwright.estimate.single import estimate
    from meshwright.measure.rehearse.choice import short_label

    faults = Faults()
    values = request.read(faults)
    with faults:
        require_torch()
    _check(values, faults)
    case, layout = _chosen(values)
    report = _report(case, layout, _options(values), on_cluster="cluster" in values)
    if report is None:
        return None
    view = step_view(report, short_label(layout), estimate(case, layout) if "cluster" in values else None)
    unsaved = None
    if "save" in values:
        try:
            write([Output(path=values["save"], text=json.dumps(view, indent=1) + "\n")], force=values["force"])
        except InputError as error:
            unsaved = error.messages[0]
    return StepAnswer(document=view, unsaved=unsaved)


def _check(values: Values, faults: Faults) -> None:
    """Everything that is wrong with the options, before anything starts."""
    given = set(values) | faults.failed
    for name in ("model", "layout", "global_batch", "sequence"):
        if name not in given:
            option = "MODEL" if name == "model" else f"--{name.replace('_', '-')}"
            faults.add(f"step.{name.replace('_', '-')}", "{option} is missing", option=option)
    inputs = [values[name] for name in ("model", "cluster") if name in values]
    saved = [values["save"]] if "save" in values else []
    faults.messages += obstacles(saved, folder=values.get("trace", ""), inputs=inputs, force=values["force"], fresh=True)
    if "trace" in values:
        faults.note(obstacles(files_in(values["trace"], "rank-*.json"), force=values["force"], fresh=True))
    if "record" in values:
        faults.note(obstacles(folder=values["record"]))
        first = os.environ.get("RANK", "0") == "0"  # ranks that are started by another write as soon as this one has joined them
        if first and files_in(values["record"], "rank-*.jsonl"):
            faults.add("step.record", "{folder} has the records of another run: give a folder of its own", folder=values["record"])
    _check_case(values, faults)
    faults.check()


def _check_case(values: Values, faults: Faults) -> None:
    """What is wrong with the model, its numbers, the cluster and the layout, each as far as the others are not needed."""
    from meshwright.catalog import load_cluster, precision
    from meshwright.catalog.sheets import looks_like_path
    from meshwright.domain.label import label_faults
    from meshwright.engine.run import check_recipe

    with faults.at("model"):
        if "model" in values:
            small_model(values)
    with faults.at("precision"):
        check_recipe(precision(values.get("precision", "bf16")))
    with faults.at("cluster"):
        if "cluster" in values and looks_like_path(str(values["cluster"])):
            load_cluster(values["cluster"])
    if "layout" not in values:
        return
    with faults.at("layout"):
        batch, ranks = values.get("global_batch"), _ranks(values["layout"])
        if wrong := label_faults(values["layout"], num_devices=ranks, global_batch_sequences=batch):
            raise InputError(wrong)


def _ranks(layout: str) -> int:
    """Ranks of a label: it says them all.

    Errors:  ``InputError`` for more than can be started.
    """
    from meshwright.engine.join import started_by_another

    ranks = prod(int(found[1]) for word in layout.lower().split() if (found := _DEGREE.fullmatch(word)))
    most = MAX_RANKS if started_by_another() else MAX_RANKS_HERE
    if not 1 <= ranks <= most:
        raise fault("step.ranks", "tp x cp x pp x dp = {ranks} ranks are not within 1 and {most}", path="--layout",
                    ranks=ranks, most=most)
    return ranks


def _chosen(values: Values) -> tuple[Case, Layout]:
    """The case on as many devices as the layout has ranks, and the layout; all that stands against it is said."""
    from meshwright.domain.label import parse_layout
    from meshwright.engine.join import started_by_another
    from meshwright.measure.here import by_file, by_nothing, check_devices
    from meshwright.measure.reference import case_of, overlap_of

    ranks = _ranks(values["layout"])
    check_devices(1 if started_by_another() else ranks, backend(values))
    cluster = by_file(values["cluster"], backend(values), ranks) if "cluster" in values else by_nothing(backend(values), ranks)
    case = case_of(
        small_model(values), cluster, global_batch=values["global_batch"], sequence_tokens=values["sequence"],
        precision=values.get("precision", "bf16"),
    )
    layout = parse_layout(
        values["layout"], num_devices=ranks, global_batch_sequences=values["global_batch"], devices_per_node=ranks, model=case.model
    )
    if layout.context_parallel > 1 and "context=" not in values["layout"].lower():
        layout = replace(layout, context_kind="ulysses")
    asked = layout.overlap  # what the reference step has not is kept, to be refused
    return case, replace(layout, overlap=replace(overlap_of(layout, backend(values)), tensor=asked.tensor, expert=asked.expert))


def _options(values: Values) -> Options:
    from meshwright.engine.request import Options

    names = {"steps": "steps", "warmup": "warmup_steps", "threads": "threads", "trace": "trace", "record": "record"}
    said = {field: values[name] for name, field in names.items() if name in values}
    for name in ("trace", "record"):
        if name in said:
            said[name] = str(Path(said[name]).resolve())
    return Options(
        backend=backend(values), packed=values["packed"], compiled=values["compile"], profiled=values["profiled"], **said
    )


def _report(case: Case, layout: Layout, options: Options, *, on_cluster: bool) -> StepReport | None:
    """What was measured; None on ranks beside the first of those that somebody else has started."""
    from meshwright.engine.join import join, joined_world, started_by_another
    from meshwright.engine.launch import Task, warn_of_cores
    from meshwright.engine.refusals import refused
    from meshwright.engine.run import TARGET, request_of, run_request

    request = request_of(case, layout, options)
    if not on_cluster and options.backend == "cpu":  # the catalogue's processor is nobody's: no MFU of it
        request = replace(request, peak_flops_per_s=None)
    if started_by_another():
        reasons = refused(request, world=joined_world())
        if reasons:
            raise InputError(reasons)
        rank, report = join(Task(target=TARGET, payload=request, backend=options.backend, threads=options.threads))
        return report if rank == 0 else None
    _check_memory(case, layout, options)
    warn_of_cores(layout.world, Task(target=TARGET, payload=None, backend=options.backend, threads=options.threads))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return run_request(request)


def _check_memory(case: Case, layout: Layout, options: Options) -> None:
    """Refuse what this host's free memory cannot hold: the system would end other programs for it."""
    from meshwright.estimate.single import estimate
    from meshwright.measure.here import free_memory_bytes
    from meshwright.units import gib

    need, free = layout.world * float(estimate(case, layout).memory_peak_bytes), free_memory_bytes()
    if options.backend == "cpu" and free is not None and need > free:
        raise NoAnswerError(Message("step.memory", "{ranks} ranks need about {need}, and {free} of this host are free: "
                            "fewer --layers, a smaller --hidden or --vocabulary",
                            {"ranks": layout.world, "need": gib(need), "free": gib(free)}))
