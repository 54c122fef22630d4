"""docs/faults.md of what a campaign told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.commit import ROOT, commit_of
from benchmarks.faults.campaign import STEP_S, STEPS, WARMUP
from benchmarks.faults.draw import KINDS, LEAST, MOST
from benchmarks.faults.judge import right
from meshwright.words import percent

if TYPE_CHECKING:
    from benchmarks.faults.campaign import Told

PAGE = ROOT / "docs" / "faults.md"
PREFACE = """# Seeded faults

Written by `python -m benchmarks.faults --cases {faults} --clean {clean} --seed {seed} --write` at commit {commit}.
Each row put faults of one kind into runs of the reference step, with kind, strength, layout and rank drawn from the seed (2 to 4
ranks; dp, tp and pp on gloo); the runs recorded themselves (`meshwright step --record`, [engine.md](engine.md)), and `diagnose`
was given the folder and nothing else. Right: the first finding above advice is the fault, and names the rank that is slow, late
or missing.
Rules and judge were made on seeds 1 to 3.

**{right} of {faults} faults come first; {false} of {clean} clean runs have a finding above advice.**

| fault | what is put in | runs | right |
|---|---|---:|---:|
"""
WHAT = {
    "slow-rank": "layers of one rank last longer",
    "starved-loader": "the data of a step come late, on all ranks",
    "synchronising-calls": "values of tensors are asked for within the step, and each time the queue drains",
    "crossed-tp": "exchanges of tensor parallelism take longer",
    "padding-waste": "targets at the end of each sequence are none",
    "late-collective": "one rank comes late to one exchange of each step",
    "missing-collective": "one rank leaves an all-reduce out; the run is ended after ten seconds",
    "memory-leak": "something is kept from each step",
    "gc-pauses": "garbage whose end takes time is collected every third step, on all ranks at once or on each at its own time",
    "recompiles": "a compiled function gets another shape each step",
    "wrong-threads": "eight threads, on every rank or on one, which is slower by it",
    "throttled-link": "exchanges of data parallelism or of the pipeline take longer",
    "clean": "nothing",
}
BEHIND = """
## How a run is made

- Intensity is the share of the step that is lost, {least} to {most}, taken from the healthy steps before the fault begins;
  of padding it is the share of tokens, of a leak the growth of the process over the run (of about 300 MiB), and of a missing
  collective or of too many threads on all ranks it means nothing.
- The device is emulated: a layer sleeps for a set time, {step_s:g} s in a step, twice as long backward as forward. Groups,
  exchanges, schedules, optimizer and records are the reference step's own. {warmup} steps warm up, {steps} count.
- The machine has two cores that others use, too. Three things keep them out of the result: sleeps are long beside what is computed
  for real; ranks come first on a core (SCHED_RR, where the system lets them), for they sleep most of the time; rules take medians
  over steps. Without the second one an exchange of gloo took about 3 ms, and clean runs had 5 to 10 % of transfers, which was so.
- Faults are put in from outside (`benchmarks/faults/inject.py`); the record and the rules know nothing of them.

## What no evidence of this kind can tell apart

Listed before the campaign was run; draws leave these out, or count either answer as right, as said.

| causes | why | in the campaign |
|---|---|---|
{apart}

## Which were not told

"""
APART = (
    ("a tensor-parallel group that crosses nodes, and a throttled link below it",
     "a record has times of transfers, and no topology: both are transfers of one group that take long",
     "throttled links are drawn below dp and pp alone"),
    ("where all ranks are one group: a rank that leaves a collective out, and a peer that calls one too many",
     "the next exchange of the group takes its number: the record shows two operations under one number, and not whose is wrong",
     "a mismatch counts as right"),
    ("a rank that is late to the only exchange of its step, and a slow rank",
     "without a second exchange nothing says whether its other work takes longer, too", "every layout drawn has several"),
    ("a late rank of a pipeline that no other rank is like, and a slower stage",
     "stages call different exchanges: only work in all can be compared", "late collectives are drawn where there is dp or tp"),
    ("a throttled device, and a slow rank for any other reason",
     "the record has no clocks of devices (nvidia-smi and DCGM have)", "both are slow-rank"),
    ("what a wrong number of threads costs, on all ranks alike", "nothing is there to compare with",
     "the finding has no share of the step, and comes behind those that have"),
)
"""Causes, why they cannot be told apart, and what the campaign does about it."""


def page(told: Sequence[Told], seed: int) -> str:
    """The page as Markdown."""
    faults = [each for each in told if each.case.kind != "clean"]
    clean = [each for each in told if each.case.kind == "clean"]
    text = PREFACE.format(
        faults=len(faults), clean=len(clean), seed=seed, commit=commit_of(), right=sum(map(right, faults)),
        false=sum(not right(each) for each in clean),
    )
    for kind in (*KINDS, "clean"):
        own = [each for each in told if each.case.kind == kind]
        text += f"| {kind} | {WHAT[kind]} | {len(own)} | {sum(map(right, own))} |\n"
    apart = "\n".join(f"| {' | '.join(row)} |" for row in APART)
    text += BEHIND.format(apart=apart, least=percent(LEAST, 0), most=percent(MOST, 0), step_s=STEP_S, warmup=WARMUP, steps=STEPS)
    wrong = [each for each in told if not right(each)]
    if not wrong:
        return text + "None.\n"
    text += "| case | fault | intensity | layout | rank | said first |\n|---:|---|---:|---|---:|---|\n"
    for each in wrong:
        case, first = each.case, each.first
        said = "nothing above advice" if first is None else f"{first.id}: {first.message}"
        text += f"| {case.number} | {case.kind} | {percent(case.intensity, 0)} | {case.layout} | {case.rank} | {said} |\n"
    return text
