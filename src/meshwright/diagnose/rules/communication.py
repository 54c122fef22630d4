"""Communication that nothing hides, by dimension of the layout, and the network below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.bandwidth import judge_table
from meshwright.diagnose.finding import HIGH, Evidence, Finding, severity_of
from meshwright.diagnose.network import UNKNOWN, Surroundings, judge_setup
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.readers.logs.parts import part_of
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.judged import Judged
    from meshwright.diagnose.run import Run
    from meshwright.frameworks.settings import Severity

TITLES = {
    "tp": "tensor-parallel",
    "cp": "context-parallel",
    "ep": "expert-parallel",
    "pp": "pipeline",
    "dp": "data-parallel",
    "unknown": "of groups that the trace does not name",
}
WAITED = 0.5
"""Share of the exposed communication that is waiting, from which it is told as such."""


def communication(run: Run) -> Iterator[Finding]:
    """Exposed communication, told apart by group where traces tell, and waiting told apart from transfer."""
    split = run.split
    if split is None or split.communication_exposed_ratio is None or (not run.traces and split.bubble_ratio is not None):
        return
    if not run.traces and run.steady is not None:
        return
    total = split.communication_exposed_ratio
    if total < HIGH:
        return
    waiting = split.waiting_ratio
    by_group = {name: spent for name, spent in split.exposed.items() if spent}
    worst = max(by_group, key=lambda name: by_group[name] or 0.0, default="unknown")
    what = f"{TITLES[worst]} communication" if worst != "unknown" else "communication"
    share = (by_group.get(worst) or total * split.step_s) / split.step_s
    waited = waiting is not None and waiting > WAITED * total
    beside = f", of which {percent(waiting / total)} is waiting for the slowest rank" if waiting is not None else ""
    yield Finding(
        message=Message(
            f"communication.{worst}",
            "{what} that nothing hides takes {share} of the step{beside}",
            {"what": what, "share": percent(min(share, 1.0)), "beside": beside},
        ),
        severity=severity_of(total),
        loss_ratio=total,
        evidence=tuple(_kernels(run)),
        remedies=remedies("communication.waiting" if waited else f"communication.{worst}", run.framework),
        refuted_by="a run of one group's size alone (dryrun, rehearse) is no faster",
        source="pytorch/kineto tb_plugin; Ascend/mstt advisor: 5 % of the step",
    )


def collectives_of_parts(run: Run) -> Iterator[Finding]:
    """Reduction and gathering of data parallelism, by the timers of a log."""
    steady = run.steady
    if steady is None or run.log is None or run.traces:
        return
    spent = {name: each for name, each in steady.parts.items() if part_of(name) in ("gradient_reduce", "parameter_gather")}
    share = sum(spent.values()) / steady.step_s if steady.step_s else 0.0
    if share < HIGH:
        return
    place = Place(file=run.log.file, line=steady.steps[0].line)
    yield Finding(
        message=Message(
            "communication.dp",
            "data-parallel communication that nothing hides takes {share} of the step",
            {"share": percent(share)},
        ),
        severity=severity_of(share),
        loss_ratio=share,
        remedies=remedies("communication.dp", run.framework),
        evidence=tuple(
            Evidence(f"timer {name}: {seconds(each)} of {seconds(steady.step_s)}", place) for name, each in spent.items()
        ),
        refuted_by="the timers shrink when ranks start together: then it is waiting, not transfer",
    )


def _kernels(run: Run) -> Iterator[Evidence]:
    for trace in run.traces:
        for group, spent in sorted(trace.exposed_by_group.items(), key=lambda each: -each[1])[:3]:
            yield Evidence(
                f"group {group or 'without a name'}: {seconds(spent)} exposed in {trace.split.window}", Place(file=trace.file)
            )


GRADES: dict[str, Severity] = {"critical": "error", "high": "warning", "medium": "warning", "low": "advice", "advice": "advice"}


def network(run: Run) -> Iterator[Finding]:
    """What the communication library says of itself, and what benchmarks reached."""
    case = run.case
    known = UNKNOWN
    if case is not None:
        cluster = case.cluster
        known = Surroundings(
            nodes=cluster.num_nodes,
            devices_per_node=cluster.devices_per_node,
            nvlink=cluster.scale_up_devices > 1,
            multicast=cluster.scale_up.in_network_reduction,
            link_bytes_per_s=cluster.network.bytes_per_s,
        )
    for setup in run.networks:
        yield from told(judge_setup(setup, known))
    for table in run.bandwidths:
        yield from told(judge_table(table, known))


def told(judged: Iterable[Judged]) -> Iterator[Finding]:
    """What was judged, as findings."""
    for each in judged:
        yield Finding(
            message=each.message,
            severity=GRADES[each.severity],
            evidence=(Evidence("", each.place),),
            remedies=(each.change,) if each.change else (),
        )
