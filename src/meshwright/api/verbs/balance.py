"""``balance``: which layers stand on which stage, and which of them are recomputed in which way."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from meshwright.api import numbers
from meshwright.api.balancing.numbers import bounds, chunk_counts, kinds, stages
from meshwright.api.door import refuse
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.options import CASE, HTML, LAYOUT
from meshwright.api.paged import paged
from meshwright.api.request import Answer, CaseRequest, Progress
from meshwright.errors import Message, NoAnswerError, fault
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.api.balancing.questions import Asked, Source
    from meshwright.api.views.balance import BalanceShown
    from meshwright.domain.balance import Balance, BalanceProblem, Objective, Overfull
    from meshwright.readers.sapp import InitFile
    from meshwright.search.balance.decompose import Decomposition
    from meshwright.search.balance.probes import ProbeProposal

TIME_LIMIT_S, EACH_S = 60.0, 9.0
"""Seconds for all numbers of virtual stages and for one of them, where nothing is said."""
SOLVING = 0.8
"""Share of the time in which problems are solved; the rest is for what stands beside the answers."""
_FILE, _SOLVER, _OUTPUT = "A file of layers", "Solver", "Output"
DEFAULT_KINDS = ("full",)
_SOURCE = Field(
    name="model", kind="argument", metavar="FILE|MODEL",
    help="SAPP's layer file (JSON) or dry-run file (YAML), a saved plan.yaml, or a model as in `plan`.",
)


class BalanceRequest(CaseRequest, frozen=True, kw_only=True):
    """A file of layers, dry runs, or a model with a layout; under which bounds, and how it is solved."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        _SOURCE,
        Field(name="stages", parse=stages, metavar="P", panel=_FILE, in_file=False, help="Pipeline stages."),
        Field(name="microbatches", parse=numbers.count, metavar="M", panel=_FILE, in_file=False, help="Micro-batches of one step."),
        Field(name="memory_mb", parse=bounds, metavar="X", panel=_FILE, in_file=False,
              help="What a stage may hold, in the file's megabytes; one number, or one for each stage separated by commas."),
        Field(name="virtual_stages", parse=chunk_counts, metavar="V", panel=_FILE, in_file=False,
              help="Chunks of a stage: a number, several as 1,2,3, or auto; several are ranked by simulated time "
                   "[default: 1, or the layout's]."),
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
              help="YAML with stage_time_s and stage_memory_bytes of a run of that layout, lists by stage, to correct the model "
                   "by."),
        *CASE[1:],
        Field(name="objective", parse=one_of("slot", "simulated"), metavar="slot|simulated", panel=_SOLVER, in_file=False,
              help="The fastest pipeline among placements with the shortest slot (SAPP's objective), or among all "
                   "[default: slot for a file of layers, simulated for a model]."),
        Field(name="time_limit", parse=numbers.positive, metavar="S", panel=_SOLVER, in_file=False,
              help=f"Seconds for all numbers of virtual stages together [default: {EACH_S:g} for each, {TIME_LIMIT_S:g} at most]."),
        Field(name="save", metavar="DIR", panel=_OUTPUT, in_file=False,
              help="Write the answer, the settings of frameworks (for a model: its launch files) and the pictures there."),
        Field(name="picture", metavar="FILE", panel=_OUTPUT, in_file=False, help="Write the pipeline as a picture (SVG)."),
        Field(name="trace", metavar="FILE", panel=_OUTPUT, in_file=False,
              help="Write the pipeline as a trace for Perfetto (JSON)."),
        HTML,
        Field(name="force", kind="flag", panel=_OUTPUT, in_file=False,
              help="Overwrite changed files; use decomposed memories even where some are negative."),
    )

    stages: int | str | None = None
    microbatches: int | str | None = None
    memory_mb: float | str | None = None
    virtual_stages: int | str | None = None
    less_memory: bool = False
    schedule: str | None = None
    sequence_splits: int | str | None = None
    training_config: str | Path | None = None
    hop: float | str | None = None
    manual: str | Path | None = None
    guide: bool = False
    recompute_kinds: str | None = None
    layout: str | None = None
    measured: str | Path | None = None
    objective: str | None = None
    time_limit: float | str | None = None
    save: str | Path | None = None
    picture: str | Path | None = None
    trace: str | Path | None = None
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class BalanceAnswer(Answer, frozen=True, kw_only=True):
    """What became of every number of virtual stages."""

    question: Asked
    solved: Solved
    saved: tuple[str, ...] = ()
    """Paths of the files that were written."""

    @property
    def ok(self) -> bool:
        """Whether something fits."""
        return bool(self.solved.answers)

    def to_json(self) -> dict[str, Any]:
        """The best answer with the ranking of all, or by how much nothing fits."""
        from meshwright.api.views.balance import balance_view, overfull_view, ranking_view
        from meshwright.api.views.decomposition import decomposition_view

        question, solved = self.question, self.solved
        if solved.answers:
            document = balance_view(solved.answers[0]) | {"ranking": ranking_view(solved.answers)}
        else:
            document = overfull_view(*solved.overfull[0], question.units)
        document |= {"name": question.name, "notes": list(question.notes), "saved": list(self.saved)}
        document |= {"refused": [{"virtual_stages": chunks, "reason": reason} for chunks, reason in solved.refused]}
        if question.decomposition is not None:
            document["decomposition"] = decomposition_view(question.decomposition)
        return document


class GuideAnswer(Answer, frozen=True, kw_only=True):
    """The dry runs that determine the memories of layers."""

    proposal: ProbeProposal

    def to_json(self) -> dict[str, Any]:
        """The document of ``balance --guide --json``."""
        from meshwright.api.views.decomposition import guide_view

        return guide_view(self.proposal)


class MemoriesAnswer(Answer, frozen=True, kw_only=True):
    """What the peaks of dry runs say of the memories of layers."""

    found: Decomposition
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of ``balance DRY_RUNS --json``."""
        from meshwright.api.views.decomposition import decomposition_view

        return {"decomposition": decomposition_view(self.found), "notes": list(self.notes)}


@overload
def balance(request: BalanceRequest, *, progress: Progress | None = None) -> BalanceAnswer | GuideAnswer | MemoriesAnswer: ...
@overload
def balance(request: BalanceProblem, *, objective: Objective = "slot", time_limit_s: float = 9.0) -> Balance | Overfull: ...
@paged
def balance(
    request: BalanceRequest | BalanceProblem, *, progress: Progress | None = None, objective: Objective = "slot",
    time_limit_s: float = 9.0,
) -> BalanceAnswer | GuideAnswer | MemoriesAnswer | Balance | Overfull:
    """Solve each number of virtual stages, and rank them by simulated time. A bare problem is answered by its balance.

    Errors:  ``InputError`` with every fault of the request; that nothing fits is an answer.
    """
    from meshwright.domain.balance import BalanceProblem
    from meshwright.search.balance.solve import balance as solve

    if isinstance(request, BalanceProblem):
        return solve(request, objective=objective, time_limit_s=time_limit_s)
    if not isinstance(request, BalanceRequest):
        refuse("balance", request, "BalanceProblem")
    faults = Faults()
    values = request.read(faults)
    if values["guide"]:
        return _guide(values, faults)
    from meshwright.api.balancing.questions import source_of
    from meshwright.api.balancing.saving import in_the_way, write

    faults.messages += in_the_way(values)
    if "model" not in values and not values.get("request"):
        faults.add("balance.source", "FILE or MODEL is missing: SAPP's layer file or dry runs, a plan.yaml, or a model")
        faults.check()
    source: Source | None = None
    with faults.at("model"):
        source = source_of(values)
    if source is None:
        faults.check()
    assert source is not None, "faults.check() raises where it is not known"
    if source == "dry runs" and not {"microbatches", "memory_mb"} & {*values, *faults.failed}:
        return _memories(values, faults)
    question = _asked(values, faults, source)
    aim = values.get("objective", "slot" if question.case is None else "simulated")
    solved = _solved(question, aim, values.get("time_limit"))
    saved = write(values, question, solved.answers[0]) if solved.answers else []
    return BalanceAnswer(question=question, solved=solved, saved=tuple(saved))


def _asked(values: Values, faults: Faults, source: Source) -> Asked:
    """The problems of a file, or of a model with a layout; every fault of the command line is raised together."""
    from meshwright.api.balancing import layers, layouts

    return layouts.asked(values, faults) if source == "model" else layers.asked(values, faults, source)


class Solved(Value, frozen=True, kw_only=True):
    """What became of the problems."""

    answers: list[BalanceShown]
    """What fits first, then the fastest; one for each number of virtual stages."""
    overfull: list[tuple[BalanceProblem, Overfull]]
    """Problems in which nothing fits; where there is no answer, the one that comes closest, with levers."""
    refused: list[tuple[int, str]]
    """Numbers of virtual stages without an answer, and why."""


def _solved(question: Asked, objective: Objective, time_limit_s: float | None) -> Solved:
    """Every problem solved in turn, within its share of what is left of the time.

    An interrupt, or the end of the time, ends it, and what was solved before is the answer.
    """
    from meshwright.api.balancing.accepted import Refused
    from meshwright.domain.balance import Overfull
    from meshwright.search.balance.solve import balance

    total_s = SOLVING * TIME_LIMIT_S if time_limit_s is None else time_limit_s
    deadline = time.monotonic() + total_s
    most_s = EACH_S if time_limit_s is None else time_limit_s
    each_s = min(most_s, total_s / max(1, len(question.questions)))
    shown: list[BalanceShown] = []
    overfull: list[tuple[BalanceProblem, Overfull]] = []
    refused = list(question.refused)
    try:
        for number, each in enumerate(question.questions):
            share_s = (deadline - time.monotonic()) / (len(question.questions) - number)
            if share_s <= 0.0 and (shown or overfull):
                refused.append((each.problem.chunks, "no time was left: see --time-limit"))
                continue
            answer = balance(each.problem, objective=objective, time_limit_s=max(0.0, min(share_s, each_s)))
            proposed = answer if isinstance(answer, Overfull) else question.answered(each, answer)
            match proposed:
                case Overfull():
                    overfull.append((each.problem, proposed))
                case Refused(reason=reason):
                    refused.append((each.problem.chunks, reason))
                case _:
                    shown.append(proposed)
    except KeyboardInterrupt:
        if not shown:
            raise
        refused.append((each.problem.chunks, "interrupted"))
    if overfull and not shown:
        problem, verdict = min(overfull, key=lambda pair: pair[1].gap)
        overfull = [(problem, replace(verdict, levers=(*verdict.levers, *question.levers(problem, verdict))))]
    answers: dict[int, BalanceShown] = {}
    if not shown and not overfull:
        raise NoAnswerError(Message("balance.refused", "nothing that can be proposed: {reason}", {"reason": reason}, path="layout")
                            for _, reason in refused)
    for one in sorted(shown, key=lambda answer: (not answer.fits, answer.time)):
        answers.setdefault(one.problem.chunks, one)
    refused += [(problem.chunks, "nothing fits") for problem, _ in overfull if problem.chunks not in answers]
    return Solved(answers=list(answers.values()), overfull=overfull, refused=list(dict.fromkeys(refused)))


def _guide(values: Values, faults: Faults) -> GuideAnswer:
    """The dry runs to make; peaks of a file count, and say stages and layers."""
    from meshwright.search.balance.probes import questions

    if "model" in values and not Path(str(values["model"])).exists():
        raise fault("balance.guide", "--guide asks which dry runs to make: it takes a file of those that were made, or none, not "
                    "{model}; --stages and --layers say the pipeline", path="model", model=str(values["model"]))
    known = _known(values, faults)
    count: int | None = values.get("stages", known.stages if known else None)
    layers: int | None = values.get("layers", known.layers if known else None)
    for name, value in (("stages", count), ("layers", layers)):
        if value is None and name not in faults.failed:
            faults.add("balance.missing", "--{name} is missing", name=name)
    faults.check()
    assert count is not None and layers is not None, "faults.check() raises where one is missing"
    occurring = tuple(name for name in known.runs.treatments if name != "none") if known else DEFAULT_KINDS
    proposal = questions(
        stages=count, layers=layers, treatments=values.get("recompute_kinds", occurring), known=known.runs if known else None,
        microbatches=values.get("microbatches"),
    )
    return GuideAnswer(proposal=proposal)


def _memories(values: Values, faults: Faults) -> MemoriesAnswer:
    """What the peaks of dry runs say of the memories of layers."""
    from meshwright.search.balance.decompose import decompose

    faults.check()
    runs = _known(values, faults)
    faults.check()
    assert runs is not None, "faults.check() raises where it could not be read"
    found = decompose(runs.runs, force=values["force"])
    return MemoriesAnswer(found=found, notes=tuple(str(each) for each in (*runs.remarks, *found.warnings)))


def _known(values: Values, faults: Faults) -> InitFile | None:
    """Dry runs that were made already."""
    from meshwright.readers.sapp import read_init_file

    if "model" not in values:
        return None
    with faults:
        return read_init_file(values["model"])
    return None
