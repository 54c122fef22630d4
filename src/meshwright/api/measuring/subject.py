"""What is measured: a case, the program that trains it, and how a layout of it becomes a trial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import fault
from meshwright.measure.chooser import Candidate
from meshwright.measure.programs.limits import limits_for
from meshwright.measure.rehearse.choice import short_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.api.fields import Faults, Values
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.measure.programs.template import Template
    from meshwright.measure.trial import Limits, Trial
    from meshwright.search.runner import Runner

STEPS, REFERENCE_STEPS = 30, 10
START_S, START_HERE_S = 120.0, 8.0
"""What the price takes for the start of a trial on accelerators and on processors, before any has run. Our judgement."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A case as it is measured."""

    case: Case
    title: str
    """Who trains it, for people."""
    framework: str
    """The same as rows of measured runs have it."""
    version: str
    features: Features
    runner: Runner
    steps: int
    key: str
    """Tells what is run from all else in a store: model, batch, numbers, devices, program."""
    label_of: Callable[[Layout], str]
    read: Callable[[str], Layout]
    """A label as a layout of the case."""
    make: Callable[[Case, Candidate, Limits], Trial]
    template: Template | None = None
    shorter: Case | None = None
    """The case with fewer layers, where trials may run these."""
    start_seconds: float | None = None
    quiet_seconds: float | None = None
    trial_seconds: float | None = None

    @property
    def start_s(self) -> float:
        """What the start of a trial is taken to last, before any has run."""
        return START_HERE_S if self.case.cluster.device.family == "cpu" else START_S

    def candidate(self, layout: Layout) -> Candidate:
        """A layout with its prediction."""
        from meshwright.estimate.single import estimate

        said = estimate(self.case, layout)
        return Candidate(label=self.label_of(layout), layout=layout, predicted_s=float(said.step_s),
                         predicted_memory_bytes=float(said.memory_reserved_bytes))

    def trial(self, candidate: Candidate) -> Trial:
        """What is run for a candidate."""
        from meshwright.measure.programs.shorter import WHOLE, scale_of

        scale = scale_of(self.case, self.shorter, candidate.layout, self.features, self.runner) if self.shorter else WHOLE
        predicted_s = candidate.predicted_s / scale.factor if candidate.predicted_s else None
        limits = limits_for(
            predicted_s, self.steps, accelerators=self.case.cluster.device.family != "cpu", start_s=self.start_seconds,
            quiet_s=self.quiet_seconds, total_s=self.trial_seconds,
        )
        made = self.make(self.shorter if self.shorter is not None and scale.said else self.case, candidate, limits)
        return replace(made, scale=scale.factor, scale_error_ratio=scale.error_ratio, scaled=scale.said)

    def refused(self, layout: Layout) -> str:
        """Why the layout cannot be run, in one line; empty where it can."""
        from meshwright.search import layout_refusals

        for reason in layout_refusals(self.case, self.features, layout):
            return reason
        return next((str(reason) for reason in self.runner.check(self.case, layout)), "")


def subject(values: Values, faults: Faults) -> Subject:
    """What the options name; every fault of it, with those found before.

    Errors:  InputError.
    """
    from meshwright.measure.programs.template import read_template

    if values["reference"] and "template" in values:
        faults.add("sweep.program", "runs the reference step and --template a script of yours: one of them", path="--reference")
    for name in ("hidden", "experts", "vocabulary"):
        if name in values and not values["reference"]:
            faults.add("sweep.shrink", "cuts down the model of the reference step: it needs --reference", path=f"--{name}")
    template = None
    if "template" in values:
        with faults.at("template"):
            template = read_template(values["template"])
    found = _of_reference(values, faults) if values["reference"] else _of_framework(values, faults, template)
    wanted = ("start_seconds", "quiet_seconds", "trial_seconds")
    found = replace(found, **{name: values[name] for name in wanted if name in values})
    return _truncated(found, values["truncate"]) if "truncate" in values else found


def _truncated(given: Subject, layers: int) -> Subject:
    """The same with trials of fewer layers; a template must say them.

    Errors:  InputError where the model has no more layers, or the template no field for them.
    """
    from meshwright.catalog import shrink

    model = given.case.model
    if layers >= model.num_layers:
        raise fault("sweep.truncate", "{model} has {layers} layers: fewer are wanted", path="--truncate", model=model.name,
                    layers=model.num_layers)
    if given.template is not None and "layers" not in {name for name, _ in given.template.fields}:
        raise fault("sweep.truncate-template", "has no field {{layers}}, and --truncate changes how many there are",
                    path=given.template.path)
    shorter = replace(given.case, model=shrink(model, layers))
    return replace(given, shorter=shorter, key=f"{given.key} of {layers} layers")


def _of_framework(values: Values, faults: Faults, template: Template | None) -> Subject:
    from meshwright.api.cases import setup
    from meshwright.api.legality import ANY_FRAMEWORK
    from meshwright.domain.label import label
    from meshwright.measure.programs.launch_files import framework_trial
    from meshwright.search.runner import Functions

    given = setup(values, faults)
    framework, case, steps = given.framework, given.case, values.get("steps", STEPS)
    if given.samples is not None:
        raise fault("sweep.lengths", "trials run full sequences: leave out --lengths", path="--lengths")
    if template is None and framework.writer is None:
        raise fault("sweep.writer", "{title} writes no launch files: give a script of yours with --template", path="--framework",
                    title=framework.title)

    def label_of(layout: Layout) -> str:
        return label(layout, overlap=framework.overlap(case, layout), experts=case.model.is_moe)

    def make(run: Case, candidate: Candidate, limits: Limits) -> Trial:
        if template is not None:
            return template.trial(run, candidate, steps=steps, limits=limits)
        return framework_trial(framework, run, candidate, steps=steps, limits=limits)

    program = f"{framework.name}@{framework.version}" if template is None else f"template {template.text}"
    title = f"{framework.title} {framework.version}" if template is None else f"{template.path}, as {framework.title} lays it out"
    features, runner = framework.features, framework
    if template is not None and "framework" not in values:  # a script of the user's own runs what it runs
        features, runner = ANY_FRAMEWORK, Functions(said=lambda layout: framework.overlap(case, layout))
    return Subject(
        case=case, title=title, framework=framework.name, version=framework.version, features=features, runner=runner,
        steps=steps, key=_key(case, program), label_of=label_of, read=given.layout, make=make, template=template,
    )


def _of_reference(values: Values, faults: Faults) -> Subject:
    """The reference step: the model cut down, the cluster as it is named, its own kernels and calibration."""
    from meshwright.api.cases import drafted
    from meshwright.api.machine_options import small_model
    from meshwright.domain.label import parse_layout
    from meshwright.engine.launch import require_torch
    from meshwright.engine.request import Options
    from meshwright.engine.run import check_recipe
    from meshwright.measure.programs.reference_step import reference_trial
    from meshwright.measure.reference import FEATURES, case_of, overlap_of, refusals
    from meshwright.search.runner import Functions

    for name in ("framework", "implementation", "calibration", "task", "lengths", "optimizer"):
        if name in values:
            faults.add("sweep.reference", "the reference step has its own: leave out {option}", path=f"--{name.replace('_', '-')}",
                       option=f"--{name.replace('_', '-')}")
    with faults:
        require_torch()
    draft = drafted(values, faults)
    with faults.at("model"):
        model = small_model(values) if "model" in values else None
    with faults.at("precision"):
        if "precision" in draft.found:
            check_recipe(draft.found["precision"])
    faults.check()
    assert draft.setup is not None and model is not None, "faults.check() raises where there is no case"
    cluster = draft.setup.case.cluster
    backend: Any = "cpu" if cluster.device.family == "cpu" else "cuda"
    case = case_of(model, cluster, global_batch=values["global_batch"], sequence_tokens=values["sequence"],
                   precision=values.get("precision", "bf16"))
    steps = values.get("steps", REFERENCE_STEPS)
    options = Options(backend=backend, steps=steps, saved=False)

    def read(label: str) -> Layout:
        layout = parse_layout(label, num_devices=cluster.num_devices, global_batch_sequences=case.batch.global_batch_sequences,
                              devices_per_node=cluster.devices_per_node, model=model)
        if layout.context_parallel > 1 and "context=" not in label.lower():
            layout = replace(layout, context_kind="ulysses")
        return replace(layout, overlap=overlap_of(layout, backend))

    def make(run: Case, candidate: Candidate, limits: Limits) -> Trial:
        cut = ["--layers", str(run.model.num_layers)] if run is not case else layers
        return reference_trial(run, candidate, [*words, *cut], steps=steps, limits=limits)

    words = [_model_word(values["model"]), "--backend", backend]
    layers = ["--layers", str(values["layers"])] if "layers" in values else []
    for name in ("hidden", "experts", "vocabulary"):
        words += [f"--{name}", str(values[name])] if name in values else []
    runner = Functions(acceptable=lambda layout: not refusals(case, layout, options),
                       said=lambda layout: overlap_of(layout, backend))
    return Subject(
        case=case, title="the reference step", framework="", version="", features=FEATURES, runner=runner, steps=steps,
        key=_key(case, f"reference {backend}"), label_of=short_label, read=read, make=make,
    )


def _model_word(model: object) -> str:
    """A model as a command line in another folder names it.

    Errors:  InputError for a model that is given as a value.
    """
    if not isinstance(model, str | Path):
        raise fault("sweep.value", "a model that is given as a value cannot be named on a command line: give its name or file",
                    path="model")
    return str(Path(model).resolve()) if Path(model).is_file() else str(model)


def _key(case: Case, program: str) -> str:
    """The name of what is run; constants and calibrations are no part of it: they predict, and change nothing."""
    cluster = case.cluster
    said = (case.model, case.batch, case.training, cluster.device.name, cluster.num_devices, cluster.devices_per_node, program)
    digest = sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{case.model.name} on {cluster.num_devices} x {cluster.device.name} {digest}"
