"""``balance`` on a file of layers, or on the dry runs that determine their memories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.balancing.beside import beside
from meshwright.api.balancing.levers import of_file, tried
from meshwright.api.balancing.questions import Asked, Question, Source, chunk_numbers, reasons
from meshwright.api.options import CASE
from meshwright.errors import InputError, Message, fault, nearest

if TYPE_CHECKING:
    from meshwright.api.fields import Faults, Values
    from meshwright.api.views.balance import BalanceShown
    from meshwright.domain.balance import Balance, BalanceProblem, Overfull
    from meshwright.domain.features import Features
    from meshwright.readers.sapp import LayerFile, ManualStrategy

_ALLOWED = frozenset({"model", "framework", "request"})
_NEEDED = ("stages", "microbatches", "memory_mb")


def asked(values: Values, faults: Faults, source: Source) -> Asked:
    """The problems of a file: one for each number of virtual stages."""
    from meshwright.frameworks import framework

    _only_of_files(values, faults)
    layers, more = _decomposed(values, faults) if source == "dry runs" else (_read(values, faults), {})
    values = {"stages": more.get("stages"), **values}
    for name in _NEEDED:
        if values.get(name) is None and name not in faults.failed:
            faults.add("balance.missing", "--{name} is missing", name=name.replace("_", "-"))
    _check_schedule(values, faults)
    features = _features(values, faults)
    _check_files(values, layers, faults)
    if layers is not None and None not in (values.get("stages"), values.get("memory_mb")):
        _check_places(values, layers, faults)
    faults.check()
    assert layers is not None, "faults.check() raises where it could not be read"
    chunks = chunk_numbers(values.get("virtual_stages"), 1, values["stages"], layers.layers)
    margin_mb = more.get("margin_mb", 0.0)
    questions, refused = _questions(values, layers, chunks, features, margin_mb)
    manual = _manual(values, layers, chunks[0], margin_mb)

    def answered(question: Question, balance: Balance) -> BalanceShown:
        return beside(balance, framework(values["framework"]) if "framework" in values else None, manual)

    def levers(problem: BalanceProblem, verdict: Overfull) -> tuple[str, ...]:
        def under(**changed: Any) -> BalanceProblem:
            there = {key: value for key, value in {**values, **changed}.items() if value is not None}
            chunk = there.get("virtual_stages", (problem.chunks,))[0]
            return _problem(there, layers, chunk if "virtual_stages" in changed else problem.chunks, margin_mb)

        return tried(of_file(problem, verdict, under))

    notes = tuple(map(str, (*layers.remarks, *more.get("remarks", ()))))
    name = Path(values["model"]).stem if source == "dry runs" else layers.name
    return Asked(
        name=name, questions=questions, refused=refused, answered=answered, levers=levers, notes=notes,
        decomposition=more.get("decomposition"),
    )


def _manual(values: Values, layers: LayerFile, chunks: int, margin_mb: float) -> list[tuple[ManualStrategy, BalanceProblem]]:
    """Strategies made by hand, each with the problem under its own number of virtual stages.

    Errors: ``InputError`` for a strategy that does not place the file's layers.
    """
    from meshwright.readers.sapp import read_manual_file

    if "manual" not in values:
        return []
    strategies = read_manual_file(values["manual"], layers=layers.layers, stages=values["stages"], chunks=chunks)
    found = [(each, _problem(values, layers, each.chunks, margin_mb)) for each in strategies]
    for strategy, problem in found:
        strategy.counts(problem.bodies, problem.treatments)
    return found


def _only_of_files(values: Values, faults: Faults) -> None:
    """Note options that only a model with a layout has."""
    said = [field.name for field in CASE if values.get(field.name, False) is not False]
    names = [name for name in said if name not in _ALLOWED]
    for name in (*names, *(name for name in ("layout", "measured") if name in values)):
        faults.add("balance.option-of-model", "does not go with a file of layers", path=f"--{name.replace('_', '-')}")


def _read(values: Values, faults: Faults) -> LayerFile | None:
    """The layer file."""
    from meshwright.readers.sapp import read_layer_file

    with faults:
        return read_layer_file(values["model"])
    return None


def _decomposed(values: Values, faults: Faults) -> tuple[LayerFile | None, dict[str, Any]]:
    """The layers whose memories explain the peaks of dry runs, and what the fit says of itself."""
    from meshwright.readers.sapp import read_init_file
    from meshwright.search.balance.decompose import decompose, layer_file

    runs = None
    with faults:
        runs = read_init_file(values["model"])
    if runs is None:
        faults.failed.add("stages")  # the file says them
        return None, {}
    if runs.body_time is None or runs.head_time is None or runs.tail_time is None:
        raise InputError(runs.remarks or Message("balance.times", "gives no times", {}, values["model"]))
    found = decompose(runs.runs, force=values["force"])
    layers = layer_file(
        found, layers=runs.layers, head_time=runs.head_time, body_time=runs.body_time, tail_time=runs.tail_time,
        coefficients=runs.coefficients,
    )
    return layers, {"decomposition": found, "stages": runs.stages, "margin_mb": found.margin_mb, "remarks": runs.remarks}


def _check_schedule(values: Values, faults: Faults) -> None:
    """Note schedules that do not exist, or that contradict other options."""
    from meshwright.perf.schedules import ORDERS

    name = values.get("schedule")
    if name is not None and name not in ORDERS:
        faults.add("balance.schedule", "unknown schedule {name!r}{hint}", path="--schedule", name=name, hint=nearest(name, ORDERS))
    if name is not None and values["less_memory"]:
        faults.add("balance.two-schedules", "--schedule {name!r} and --less-memory are two schedules", name=name)
    if values["less_memory"] and values.get("virtual_stages", (1,)) == (1,):
        faults.add("balance.one-chunk-less", "interleaves chunks: it needs --virtual-stages 2 or more", path="--less-memory")
    if "training_config" in values and values.get("sequence_splits", 1) == 1:
        faults.add("balance.no-splits", "is read for --sequence-splits alone", path="--training-config")
    if values.get("sequence_splits", 1) > 1 and "training_config" not in values:
        faults.add("balance.splits", "--sequence-splits needs --training-config: the widths say what a split holds")


def _features(values: Values, faults: Faults) -> Features | None:
    """What the framework that was asked for can express; None where none was."""
    from meshwright.frameworks import framework

    with faults.at("framework"):
        return framework(values["framework"]).features if "framework" in values else None
    return None


def _check_files(values: Values, layers: LayerFile | None, faults: Faults) -> None:
    """Note what is wrong with the files beside that of the layers."""
    from meshwright.readers.sapp import read_manual_file, read_sequence_shape

    with faults:
        if "training_config" in values:
            read_sequence_shape(values["training_config"])
    with faults:
        if "manual" in values and faults.messages and layers is not None and values.get("stages"):
            most = max(values.get("virtual_stages") or (1,))
            read_manual_file(values["manual"], layers=layers.layers, stages=values["stages"], chunks=most)


def _check_places(values: Values, layers: LayerFile, faults: Faults) -> None:
    """Note more stages than layers, and bounds that are not one for each stage."""
    stages, limits = values["stages"], values["memory_mb"]
    if stages > layers.layers:
        faults.add("balance.stages", "{stages} stages are more than the {layers} layers", path="--stages", stages=stages,
                    layers=layers.layers)
    if len(limits) not in {1, stages}:
        faults.add("balance.bounds", "{given} bounds for {stages} stages: give one, or one for each", path="--memory-mb",
                    given=len(limits), stages=stages)


def _questions(
    values: Values, layers: LayerFile, chunks: tuple[int, ...], features: Features | None, margin_mb: float
) -> tuple[tuple[Question, ...], tuple[tuple[int, str], ...]]:
    """A problem for each number of virtual stages; those that are impossible are refused, all of them with an error."""
    questions: list[Question] = []
    refused: list[tuple[int, InputError]] = []
    for count in chunks:
        try:
            problem = _problem(values, layers, count, margin_mb)
            questions += [Question(problem=each) for each in _restricted(problem, features)]
        except InputError as error:
            refused.append((count, error))
    if not questions:
        raise refused[0][1]
    return tuple(questions), tuple((count, reasons(error)) for count, error in refused)


def _problem(values: Values, layers: LayerFile, chunks: int, margin_mb: float) -> BalanceProblem:
    """The problem under a number of virtual stages.

    Errors: ``InputError`` where the schedule does not have such a pipeline.
    """
    from meshwright.readers.sapp import problem, read_sequence_shape
    from meshwright.search.balance.sound import require_sound

    stages, microbatches, splits = values["stages"], values["microbatches"], values.get("sequence_splits", 1)
    if stages * chunks > layers.layers:
        raise fault("balance.places", "{stages} stages of {chunks} chunks are more than the {layers} layers",
                    path="--virtual-stages", stages=stages, chunks=chunks, layers=layers.layers)
    schedule = _schedule(values, chunks)
    if schedule.startswith("interleaved") and chunks == 1:
        raise fault("balance.one-chunk", "schedule {schedule} needs --virtual-stages 2 or more", schedule=schedule)
    if chunks > 1 and microbatches * splits < stages:
        raise fault("balance.interleaved", "{microbatches} micro-batches are fewer than the {stages} stages to interleave",
                    path="--microbatches", microbatches=microbatches * splits, stages=stages)
    limits = [bound - margin_mb for bound in values["memory_mb"]]
    found = problem(
        layers, stages=stages, microbatches=microbatches, memory_mb=limits[0] if len(limits) == 1 else limits, chunks=chunks,
        schedule=schedule, sequence_splits=splits, hop_time=values.get("hop", 0.0),
        sequence=read_sequence_shape(values["training_config"]) if splits > 1 else None,
    )
    if found.hop_time < 0:
        raise fault("balance.hop", "{value:g} is below zero", path="--hop", value=found.hop_time)
    require_sound(found)
    return found


def _schedule(values: Values, chunks: int) -> str:
    """The schedule's name: as given, or what chunks and splits imply."""
    if "schedule" in values:
        return str(values["schedule"])
    if values.get("sequence_splits", 1) > 1:
        return "seq1f1b"
    if chunks == 1:
        return "1f1b"
    return "interleaved-less-memory" if values["less_memory"] else "interleaved"


def _restricted(problem: BalanceProblem, features: Features | None) -> tuple[BalanceProblem, ...]:
    """What is left of a problem for a framework: an even split where it has no other, and recomputation as it can say it."""
    from meshwright.estimate.split import even_split

    if features is None:
        return (problem,)
    if not features.uneven_stages:
        problem = replace(problem, fixed_layers=even_split(problem.layers, problem.stages, problem.chunks))
    if features.recompute_mixed:
        return (problem,)
    plain = tuple(name for name in problem.treatments if name in {problem.treatments[0], "full"})
    if features.recompute_per_stage or features.recompute_first_layers:
        rule: Any = "any" if features.recompute_per_stage else "first"
        return (replace(_only(problem, plain), recompute_rule=rule),)
    return tuple(_only(problem, (name,)) for name in plain)


def _only(problem: BalanceProblem, names: tuple[str, ...]) -> BalanceProblem:
    """The problem with some of its treatments."""
    kept = [problem.treatments.index(name) for name in names]
    bodies = tuple(
        replace(
            body, backward_times=tuple(body.backward_times[index] for index in kept),
            activation_memory=tuple(body.activation_memory[index] for index in kept) if body.activation_memory else (),
            transient_memory=tuple(body.transient_memory[index] for index in kept) if body.transient_memory else (),
        )
        for body in problem.bodies
    )
    return replace(problem, treatments=names, bodies=bodies)
