"""Options of the verbs that run trials, and the request that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from meshwright.api import numbers
from meshwright.api.fields import Field
from meshwright.api.machine_options import EXPERTS, HIDDEN, VOCABULARY
from meshwright.api.options import HTML, PLAN
from meshwright.api.request import CaseRequest

_WHAT, _WHERE, _SPEND, _TIME = "What is run", "Where it runs", "What it may cost", "How long a trial may take"
_PINS = tuple(field for field in PLAN if field.name == "pin")
PROGRAM = (
    Field(name="template", metavar="FILE", panel=_WHAT, in_file=False,
          help="Run this script of yours, with fields such as {tensor_parallel} for the layout [default: the framework's files]."),
    Field(name="reference", kind="flag", panel=_WHAT, in_file=False,
          help="Run the reference step of this program, on a model cut down by the options below."),
    *(field for field in (HIDDEN, EXPERTS, VOCABULARY)),
    Field(name="truncate", parse=numbers.count, metavar="N", panel=_WHAT, in_file=False,
          help="Run N layers where a layout allows it, and scale the step to the whole model by the cost model."),
    Field(name="steps", parse=numbers.count, metavar="N", panel=_WHAT, in_file=False,
          help="Steps of a trial at most; it ends earlier when enough is known [default: 30, of the reference step 10]."),
    *_PINS,
)
PLACE = (
    Field(name="executor", kind="many", metavar="NAME", panel=_WHERE, in_file=False,
          help="local, slurm, ssh, kubernetes, ray, or a plugin's [default: local]."),
    Field(name="hosts", kind="many", metavar="HOST", panel=_WHERE, in_file=False,
          help="A host of --executor ssh, repeatable, the first node first."),
    Field(name="at_once", parse=numbers.count, metavar="N", panel=_WHERE, in_file=False,
          help="Trials at a time [default: 1 on this machine, 4 under a scheduler]."),
    Field(name="reuse", kind="flag", panel=_WHERE, in_file=False,
          help="Keep allocations of Slurm between trials, and ranks of the reference step on processors."),
    Field(name="store", metavar="FILE.db", panel=_WHERE, in_file=False,
          help="Where trials are kept, with a folder for each beside it [default: runs.db]."),
    Field(name="resume", kind="flag", panel=_WHERE, in_file=False,
          help="Go on with a store that is there: what it has is not run again."),
)
SPEND = (
    Field(name="trials", parse=numbers.count, metavar="N", panel=_SPEND, in_file=False, help="Trials at most."),
    Field(name="minutes", parse=numbers.positive, metavar="M", panel=_SPEND, in_file=False, help="Minutes at most."),
    Field(name="device_hours", parse=numbers.positive, metavar="H", panel=_SPEND, in_file=False, help="Device-hours at most."),
    Field(name="dry_run", kind="flag", panel=_SPEND, in_file=False, help="Say what would be run and what it would cost, and stop."),
    Field(name="yes", kind="flag", panel=_SPEND, in_file=False, help="Start without asking."),
)
FINALS = (
    Field(name="finals", parse=numbers.count_or_none, metavar="N", panel=_SPEND, in_file=False,
          help="Measure the fastest again by turns, N rounds at most: no drift of the machine decides [default: 0]."),
)
LIMITS = (
    Field(name="start_seconds", parse=numbers.positive, metavar="S", panel=_TIME, in_file=False,
          help="Until its first step [default: 1800, on processors 300]."),
    Field(name="quiet_seconds", parse=numbers.positive, metavar="S", panel=_TIME, in_file=False,
          help="Without a step or a line, after which it hangs [default: 20 predicted steps, at least 600, on processors 120]."),
    Field(name="trial_seconds", parse=numbers.positive, metavar="S", panel=_TIME, in_file=False,
          help="In all [default: the start and three times its predicted steps]."),
)
RESULTS = (
    Field(name="events", metavar="FILE.jsonl", panel="Output", in_file=False, help="Every event as a line of JSON, as it happens."),
    Field(name="out", metavar="RUNS.csv|.parquet", panel="Output", in_file=False,
          help="The measured runs, as calibrate --runs and validate take them."),
    HTML,
    Field(name="force", kind="flag", panel="Output", in_file=False,
          help="Replace --out where it was changed, and the file of --html."),
)
SHARED = (*PROGRAM, *PLACE, *SPEND, *FINALS, *LIMITS, *RESULTS)


class TrialsRequest(CaseRequest, frozen=True, kw_only=True):
    """A case, and how trials of it are run: what ``sweep`` and ``tune`` share."""

    template: str | Path | None = None
    """A script of yours with fields such as ``{tensor_parallel}``."""
    reference: bool = False
    """The reference step instead of a framework."""
    hidden: int | str | None = None
    experts: int | str | None = None
    vocabulary: int | str | None = None
    truncate: int | str | None = None
    """Layers that trials run, their step scaled to the whole model."""
    steps: int | str | None = None
    pin: Mapping[str, object] | Sequence[str] = ()
    executor: Sequence[str] = ()
    hosts: Sequence[str] = ()
    at_once: int | str | None = None
    reuse: bool = False
    """Allocations and ranks stay between trials, where executor and program permit it."""
    store: str | Path | None = None
    resume: bool = False
    trials: int | str | None = None
    minutes: float | str | None = None
    device_hours: float | str | None = None
    finals: int | str | None = None
    """Rounds in which the fastest are measured again by turns."""
    dry_run: bool = False
    yes: bool = False
    start_seconds: float | str | None = None
    quiet_seconds: float | str | None = None
    trial_seconds: float | str | None = None
    events: str | Path | None = None
    out: str | Path | None = None
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False
