"""``meshwright balance``: which layers stand on which stage, and which of them are recomputed in which way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from meshwright.api import numbers
from meshwright.api.balance.numbers import bounds, chunk_counts, kinds, stages
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.options import CASE, JSON, LAYOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.balance.questions import Asked, Question, Source
    from meshwright.api.views.balance import BalanceShown
    from meshwright.domain.balance import Balance, BalanceProblem, Objective, Overfull

EPILOG = """\
Example: meshwright balance layers.json --stages 16 --microbatches 64 --memory-mb 53000 --virtual-stages 1,2,3

Example: meshwright balance dry_runs.yaml --microbatches 64 --memory-mb 56000 (without both: what the peaks come to)

Example: meshwright balance --guide --stages 16 --layers 96 --recompute-kinds full,selective

Example: meshwright balance llama3.1-405b --device h100-sxm --nodes 64 --global-batch 512 --sequence 8192 --layout "tp8 pp16 mb1 sp"
"""
DEFAULT_TIME_LIMIT_S = 9.0
_FILE, _SOLVER, _OUTPUT = "A file of layers", "Solver", "Output"
_SOURCE = Field(
    name="model", kind="argument", metavar="FILE|MODEL",
    help="SAPP's layer file (JSON) or dry-run file (YAML), a saved plan.yaml, or a model as in `plan`.",
)
FIELDS = (
    _SOURCE,
    Field(name="stages", parse=stages, metavar="P", panel=_FILE, in_file=False, help="Pipeline stages."),
    Field(name="microbatches", parse=numbers.count, metavar="M", panel=_FILE, in_file=False, help="Micro-batches of one step."),
    Field(name="memory_mb", parse=bounds, metavar="X", panel=_FILE, in_file=False,
          help="What a stage may hold, in the file's megabytes; one number, or one for each stage separated by commas."),
    Field(name="virtual_stages", parse=chunk_counts, metavar="V", panel=_FILE, in_file=False,
          help="Chunks of a stage: a number, several as 1,2,3, or auto; several are ranked by simulated time [default: 1, or the "
               "layout's]."),
    Field(name="less_memory", kind="flag", panel=_FILE, in_file=False, help="MindSpore's interleaving that holds less."),
    Field(name="schedule", metavar="NAME", panel=_FILE, in_file=False, help="1f1b, interleaved, gpipe, zb1p, dualpipev, ..."),
    Field(name="sequence_splits", parse=numbers.count, metavar="K", panel=_FILE, in_file=False,
          help="Split each sequence so many times (seq-1F1B); needs --training-config."),
    Field(name="training_config", metavar="FILE", panel=_FILE, in_file=False,
          help="MindFormers' training YAML, whose widths say what a split of the sequence holds."),
    Field(name="hop", parse=numbers.real, metavar="T", panel=_FILE, in_file=False,
          help="Time of one activation to the next stage, in the file's unit [default: 0]."),
    Field(name="manual", metavar="FILE", panel=_FILE, in_file=False,
          help="SAPP's file of strategies made by hand, to stand beside the answer."),
    Field(name="guide", kind="flag", panel=_FILE, in_file=False, help="Say which dry runs determine the memories of layers."),
    Field(name="recompute_kinds", parse=kinds, metavar="KINDS", panel=_FILE, in_file=False,
          help="With --guide: what is to be told apart, of selective, communication, both and full [default: full]."),
    LAYOUT,
    Field(name="measured", metavar="FILE", panel="Layout", in_file=False,
          help="YAML with stage_time_s and stage_memory_bytes of a run of that layout, lists by stage, to correct the model by."),
    *CASE[1:],
    Field(name="objective", parse=one_of("slot", "simulated"), metavar="slot|simulated", panel=_SOLVER, in_file=False,
          help="The fastest pipeline among placements with the shortest slot (SAPP's objective), or among all "
               "[default: slot for a file of layers, simulated for a model]."),
    Field(name="time_limit", parse=numbers.positive, metavar="S", panel=_SOLVER, in_file=False,
          help="Seconds for each number of virtual stages [default: 9]."),
    Field(name="save", metavar="DIR", panel=_OUTPUT, in_file=False,
          help="Write the answer, the settings of frameworks (for a model: its launch files) and the pictures there."),
    Field(name="picture", metavar="FILE", panel=_OUTPUT, in_file=False, help="Write the pipeline as a picture (SVG)."),
    Field(name="trace", metavar="FILE", panel=_OUTPUT, in_file=False, help="Write the pipeline as a trace for Perfetto (JSON)."),
    Field(name="force", kind="flag", panel=_OUTPUT, in_file=False,
          help="Overwrite changed files; use decomposed memories even where some are negative."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Solve each number of virtual stages, rank them by simulated time, and print the best."""
    if values["guide"]:
        from meshwright.cli.balance_guide import guide

        return guide(values, faults)
    from meshwright.api.balance.questions import source_of
    from meshwright.cli.balance_saving import check_targets, write

    with faults:
        check_targets(values)
    if "model" not in values and not values.get("request"):
        faults.add("balance.source", "FILE or MODEL is missing: SAPP's layer file or dry runs, a plan.yaml, or a model")
        faults.check()
    source = source_of(values)
    if source == "dry runs" and not {"microbatches", "memory_mb"} & {*values, *faults.failed}:
        from meshwright.cli.balance_guide import memories

        return memories(values, faults)
    question = _asked(values, faults, source)
    objective = values.get("objective", "slot" if question.case is None else "simulated")
    solved = _solved(question, objective, values.get("time_limit", DEFAULT_TIME_LIMIT_S))
    saved = write(values, question, solved.answers[0]) if solved.answers else []
    if values["json"]:
        from meshwright.cli.output import print_json

        print_json(_document(question, solved, saved))
    else:
        _report(question, solved, saved)
    return 0 if solved.answers else 1


def _asked(values: Values, faults: Faults, source: Source) -> Asked:
    """The problems of a file, or of a model with a layout; every fault of the command line is raised together."""
    from meshwright.api.balance import layers, layouts

    return layouts.asked(values, faults) if source == "model" else layers.asked(values, faults, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What became of the problems."""

    answers: list[BalanceShown]
    """What fits first, then the fastest; one for each number of virtual stages."""
    overfull: list[tuple[BalanceProblem, Overfull]]
    """Problems in which nothing fits; where there is no answer, the one that comes closest, with levers."""
    refused: list[tuple[int, str]]
    """Numbers of virtual stages without an answer, and why."""


def _solved(question: Asked, objective: Objective, time_limit_s: float) -> Solved:
    """Every problem solved in turn; an interrupt ends it, and what was solved before is the answer."""
    from meshwright.domain.balance import Overfull
    from meshwright.search.balance import balance

    found: list[tuple[Question, Balance]] = []
    overfull: list[tuple[BalanceProblem, Overfull]] = []
    refused = list(question.refused)
    try:
        for each in question.questions:
            answer = balance(each.problem, objective=objective, time_limit_s=time_limit_s)
            if isinstance(answer, Overfull):
                overfull.append((each.problem, answer))
            else:
                found.append((each, answer))
    except KeyboardInterrupt:
        if not found:
            raise
        refused.append((each.problem.chunks, "interrupted"))
    if overfull and not found:
        problem, verdict = min(overfull, key=lambda pair: pair[1].gap)
        overfull = [(problem, replace(verdict, levers=(*verdict.levers, *question.levers(problem, verdict))))]
    answers: dict[int, BalanceShown] = {}
    for one in sorted((question.answered(*pair) for pair in found), key=lambda answer: (not answer.fits, answer.time)):
        answers.setdefault(one.problem.chunks, one)
    refused += [(problem.chunks, "nothing fits") for problem, _ in overfull if problem.chunks not in answers]
    return Solved(answers=list(answers.values()), overfull=overfull, refused=list(dict.fromkeys(refused)))


def _document(question: Asked, solved: Solved, saved: Sequence[str]) -> dict[str, Any]:
    """The JSON of the best answer with the ranking of all, or of what does not fit."""
    from meshwright.api.views.balance import balance_view, overfull_view, ranking_view

    if solved.answers:
        document = balance_view(solved.answers[0]) | {"ranking": ranking_view(solved.answers)}
    else:
        document = overfull_view(*solved.overfull[0], question.units)
    document |= {"name": question.name, "notes": list(question.notes), "saved": list(saved)}
    document |= {"refused": [{"virtual_stages": chunks, "reason": reason} for chunks, reason in solved.refused]}
    if question.decomposition is not None:
        from meshwright.api.views.decomposition import decomposition_view

        document["decomposition"] = decomposition_view(question.decomposition)
    return document


def _report(question: Asked, solved: Solved, saved: Sequence[str]) -> None:
    """Tables of the best answer, or by how much nothing fits."""
    from meshwright.cli.output import print_report
    from meshwright.report.balance import balance_report, notes_report, overfull_report, ranking_report
    from meshwright.report.cost import saved_lines

    if question.decomposition is not None:
        from meshwright.report.decomposition import decomposition_report

        print_report(decomposition_report(question.decomposition))
    print_report(notes_report(question.notes))
    if solved.answers:
        print_report(balance_report(solved.answers[0], question.name))
    else:
        problem, verdict = solved.overfull[0]
        print_report(overfull_report(problem, verdict, question.name, question.units))
    print_report(ranking_report(solved.answers, solved.refused))
    if saved:
        print_report(saved_lines(saved))
