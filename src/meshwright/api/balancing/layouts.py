"""``balance`` on a model with a layout: times and bytes are the cost model's, the answer is a layout."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.balancing.accepted import accepted, layout_with, sayable
from meshwright.api.balancing.levers import of_layout
from meshwright.api.balancing.measured import Measured, read_measured
from meshwright.api.balancing.questions import OF_A_FILE, Asked, Question, chunk_numbers, reasons
from meshwright.api.views.balance import SECONDS_AND_BYTES, BalanceShown, rival
from meshwright.domain.balance import Balance
from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.errors import InputError, Message, NoAnswerError, fault

if TYPE_CHECKING:
    from meshwright.api.balancing.accepted import Refused
    from meshwright.api.cases import Setup
    from meshwright.api.fields import Faults, Values
    from meshwright.api.views.balance import Rival
    from meshwright.domain.balance import BalanceProblem, Overfull
    from meshwright.domain.layout import Layout, Treatment
    from meshwright.frameworks.stage_lists import Words
    from meshwright.search.balance.measured import Correction

_BY_CHUNKS = ("1f1b", "interleaved")
"""Schedules of which the number of virtual stages makes one the other."""


def asked(values: Values, faults: Faults) -> Asked:
    """The problems of a layout: one for each number of virtual stages and each way of recomputing that the framework has."""
    from meshwright.api.cases import drafted
    from meshwright.api.options import known_keys

    for name in OF_A_FILE:
        if values.get(name):
            faults.add("balance.option-of-file", "goes with a file of layers; of a model, the layout says it",
                       path=f"--{name.replace('_', '-')}")
    if "layout" not in values and "layout" not in faults.failed:
        faults.add("balance.layout", '--layout is missing, as in --layout "tp8 pp16 mb1 sp zero1"')
    draft = drafted({key: value for key, value in values.items() if key in known_keys()}, faults)
    given, layout, run = draft.setup, draft.layout(values, faults), None
    if given is not None and layout is not None:
        with faults.at("layout"):
            _check(given, layout, framework_asked="framework" in values)
    with faults:
        if "measured" in values:
            run = read_measured(values["measured"], layout.pipeline_parallel if layout is not None else None)
    faults.check()
    assert given is not None and layout is not None, "faults.check() raises where one is missing"
    questions, refused = _questions(given, layout, values, _correction(given, layout, run))

    def answered(question: Question, balance: Balance) -> BalanceShown | Overfull | Refused:
        return _answer(given, layout, question, balance)

    def levers(problem: BalanceProblem, verdict: Overfull) -> tuple[str, ...]:
        return of_layout(given, layout)

    return Asked(
        name=given.case.model.name, questions=questions, refused=refused, units=SECONDS_AND_BYTES, answered=answered, levers=levers,
        case=given,
    )


def _check(given: Setup, layout: Layout, *, framework_asked: bool) -> None:
    """Refuse a layout that makes no sense, or that has no pipeline."""
    from meshwright.api.legality import check_layout

    if layout.pipeline_parallel == 1:
        raise fault("balance.no-pipeline", "pp1 has one stage: there is nothing to balance; add pp2 or more", path="layout")
    check_layout(given, layout, framework_asked=framework_asked)


def _correction(given: Setup, layout: Layout, run: Measured | None) -> Correction | None:
    """How a run of the given layout differs from the model; None where there was no run."""
    from meshwright.search.balance.layouts import Choice, problem_of
    from meshwright.search.balance.measured import correction

    if run is None:
        return None
    treatments = tuple(dict.fromkeys((NoRecompute(), *_treatments(layout))))
    problem = problem_of(given.case, given.framework.features, layout, Choice(treatments=treatments))
    counts = counts_of(given, layout, problem)
    assert counts is not None, "the problem has the treatments of its layout"
    return correction(problem, counts, stage_times=run.times_s, stage_memories=run.memories_bytes)


def _treatments(layout: Layout) -> tuple[Treatment, ...]:
    """What layers of a layout do."""
    match layout.recompute:
        case Mixed(parts=parts):
            return tuple(treatment for treatment, _ in reversed(parts))
        case Full():
            return (Full(),)
        case other:
            return (other,)


def _questions(
    given: Setup, layout: Layout, values: Values, run: Correction | None
) -> tuple[tuple[Question, ...], tuple[tuple[int, str], ...]]:
    """A problem for each number of virtual stages and each way of recomputing; those that the framework refuses, and why."""
    from meshwright.search.balance.layouts import choices, problem_of
    from meshwright.search.balance.measured import corrected
    from meshwright.search.balance.sound import require_sound

    features = given.framework.features
    numbers = chunk_numbers(
        values.get("virtual_stages"), layout.virtual_stages, layout.pipeline_parallel, given.case.model.num_layers
    )
    questions: list[Question] = []
    refused: list[tuple[int, list[str]]] = []
    for chunks in numbers:
        there = with_chunks(layout, chunks)
        if there != layout and (why := _refusals(given, there)):
            refused.append((chunks, why))
            continue
        try:
            for choice in choices(features, there):
                problem = problem_of(given.case, features, there, sayable(given, there, choice))
                problem = corrected(problem, run) if run is not None else problem
                require_sound(problem)
                questions.append(Question(problem=problem, layout=there))
        except InputError as error:
            refused.append((chunks, [reasons(error)]))
    if not questions:
        raise InputError(Message("balance.refused", "{reason}", {"reason": each}, path="layout") for each in refused[0][1])
    return tuple(questions), tuple((chunks, "; ".join(why)) for chunks, why in refused)


def with_chunks(layout: Layout, chunks: int) -> Layout:
    """The layout under another number of virtual stages; stages as even as possible, recomputation of the same kind."""
    if chunks == layout.virtual_stages:
        return layout
    schedule = layout.schedule
    if schedule in _BY_CHUNKS:
        schedule = "interleaved" if chunks > 1 else "1f1b"
    whole = isinstance(layout.recompute, Full) and isinstance(layout.recompute.layers, tuple)
    return replace(
        layout, virtual_stages=chunks, schedule=schedule, stage_layers=None, recompute=Full() if whole else layout.recompute
    )


def _refusals(given: Setup, layout: Layout) -> list[str]:
    """Why the model or the framework cannot have such a layout."""
    from meshwright.search import layout_refusals

    own = given.framework.check(given.case, layout)
    return [*layout_refusals(given.case, given.framework.features, layout), *(str(replace(each, path="")) for each in own)]


def _answer(given: Setup, before: Layout, question: Question, balance: Balance) -> BalanceShown | Overfull | Refused:
    """The balanced layout with its estimate, the one that was given beside it, and the framework's settings."""
    from meshwright.estimate import estimate as predict

    assert question.layout is not None, "a question of a layout has one"
    found = accepted(given, question.layout, balance)
    if not isinstance(found, Balance):
        return found
    layout = layout_with(given, question.layout, found.problem, found.best)
    estimate = predict(given.case, layout)
    return BalanceShown(
        balance=found, units=SECONDS_AND_BYTES, label=estimate.label, framework=given.framework.name,
        words=_words(given, question.layout, layout), rivals=_given_rival(given, before, found.problem),
        estimate=estimate, estimate_before=predict(given.case, before),
    )


def _words(given: Setup, plain: Layout, layout: Layout) -> tuple[Words, ...]:
    """The framework's settings that say where layers stand and what they recompute; what it refuses of them."""
    from meshwright.frameworks.stage_lists import Words

    framework, case = given.framework, given.case
    refused = tuple(str(replace(each, path="")) for each in framework.check(case, layout))
    if framework.decide is None or refused:
        return (Words(framework=framework.title, lacks=refused or ("anything: its plugin only plans",)),)
    empty = replace(plain, stage_layers=None, recompute=NoRecompute())
    before, after = (framework.decide(case, each, framework.version) for each in (empty, layout))
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    return (Words(framework=f"{framework.title} {framework.version}".strip(), settings=changed),)


def _given_rival(given: Setup, layout: Layout, problem: BalanceProblem) -> tuple[Rival, ...]:
    """The layout as it was given, where the problem can say it."""
    from meshwright.search.balance.solve import place

    if layout.virtual_stages != problem.chunks:
        return ()
    counts = counts_of(given, layout, problem)
    if counts is None:
        return ()
    return (rival(problem, "the layout as given", place(problem, counts)),)


def counts_of(given: Setup, layout: Layout, problem: BalanceProblem) -> Any:
    """A layout's layers ``[body, treatment, chunk, stage]``; None where it treats layers as the problem does not.

    Treated layers are the first of their chunk, the heaviest treatment first.
    """
    import numpy as np

    from meshwright.estimate.evaluate import split_of
    from meshwright.search.balance.treatments import kinds_at

    split = np.array(split_of(given.case, layout), dtype=np.int64)
    grids = _grids(layout, split)
    if not set(grids) <= set(problem.treatments):
        return None
    left = kinds_at(problem, split)
    counts = np.zeros((left.shape[0], len(problem.treatments), *left.shape[1:]), dtype=np.int64)
    for treatment in reversed(range(1, len(problem.treatments))):
        wanted = grids.get(problem.treatments[treatment], np.zeros_like(split))
        for body in range(left.shape[0]):
            taken = np.minimum(left[body], wanted)
            counts[body, treatment] += taken
            left[body] -= taken
            wanted = wanted - taken
    if left.any() and problem.treatments[0] not in {"none", *grids}:
        return None
    counts[:, 0] = left
    return counts


def _grids(layout: Layout, split: Any) -> dict[str, Any]:
    """Layers by treatment of the problem's words, ``[chunk, stage]``; what is in none keeps everything."""
    import numpy as np

    from meshwright.domain.label import recompute_word

    match layout.recompute:
        case NoRecompute():
            return {}
        case Selective(modules=modules):
            return {recompute_word(Selective(modules=tuple(sorted(set(modules))))): split}
        case Full(layers=None):
            return {"full": split}
        case Full(layers=int(count)):
            return {"full": np.minimum(split, count)}
        case Full(layers=tuple(rows)):
            return {"full": np.array(rows, dtype=np.int64)}
        case Mixed(parts=parts):
            return {recompute_word(treatment): np.array(rows, dtype=np.int64) for treatment, rows in parts}
    return {}


def launch(given: Setup, answer: BalanceShown) -> list[Any]:
    """The plan of a balanced layout and the framework's launch files, where it can run it."""
    from meshwright.api.launch_files import launch_files
    from meshwright.api.saved import plan_file

    estimate = answer.estimate
    assert estimate is not None, "an answer for a layout has an estimate"
    files: list[Any] = [plan_file(given.request, estimate)]
    if given.framework.writer is not None:
        with suppress(NoAnswerError):
            files += launch_files(given, estimate.layout, estimate)
    return files
