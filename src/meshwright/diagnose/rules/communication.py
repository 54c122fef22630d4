"""Communication that nothing hides, by dimension of the layout, and the network below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.bandwidth import judge_table
from meshwright.diagnose.finding import HIGH, Evidence, Finding, severity_of
from meshwright.diagnose.groups import TITLES
from meshwright.diagnose.network import UNKNOWN, Surroundings, judge_setup
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.readers.logs.parts import part_of
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

WAITED = 0.5
"""Share of the exposed communication that is waiting, from which it is told as such."""
REDUCED = ("gradient_reduce", "parameter_gather", "embedding_reduce")
"""Timers that are communication of data parallelism."""


def communication(run: Run) -> Iterator[Finding]:
    """Exposed communication, one finding for each dimension that has enough of it, and waiting told apart from transfer.

    Where none has enough and all together have, the one with most is told. What timers call waiting for another stage is the
    pipeline's (``rules.pipeline``).
    """
    split = run.split
    if split is None or split.collectives_ratio is None or not split.step_s:
        return
    total, waiting = split.collectives_ratio, split.waiting_ratio
    shares = {name: min(1.0, spent / split.step_s) for name, spent in split.exposed.items() if spent} or {"unknown": total}
    if split.source == "timers":
        shares, waiting = {"dp": shares.get("dp", 0.0)}, None
    told = [name for name, share in shares.items() if share >= HIGH]
    if not told and total >= HIGH:
        told = [max(shares, key=lambda name: shares[name])]
    waited = waiting is not None and waiting > WAITED * total
    beside = f"; of all of it {percent(waiting / total)} is waiting for the slowest rank" if waiting and total else ""
    for name in told:
        yield Finding(
            message=Message(
                f"communication.{name}",
                "{what} that nothing hides takes {share} of the step{beside}",
                {"what": f"{TITLES.get(name, '')} communication".strip(), "share": percent(shares[name]), "beside": beside},
            ),
            severity=severity_of(shares[name]),
            loss_ratio=shares[name],
            evidence=tuple(_timers(run) if split.source == "timers" else _kernels(run, name)),
            remedies=remedies("communication.waiting" if waited else f"communication.{name}", run.framework),
            refuted_by="the timers shrink when ranks start together: then it is waiting, not transfer"
            if split.source == "timers"
            else "a run of one group's size alone (dryrun, rehearse) is no faster",
            source="pytorch/kineto tb_plugin; Ascend/mstt advisor: 5 % of the step",
        )


def _timers(run: Run) -> Iterator[Evidence]:
    assert run.steady is not None and run.log is not None, "timers are a log's"
    place = Place(file=run.log.file, line=run.steady.steps[0].line)
    for name, spent in run.steady.parts.items():
        if part_of(name) in REDUCED:
            yield Evidence(f"timer {name}: {seconds(spent)} of {seconds(run.steady.step_s)}", place)


def _kernels(run: Run, dimension: str) -> Iterator[Evidence]:
    """The groups of a dimension that are exposed most, on every rank that was traced."""
    for trace in run.traces:
        groups = {group: spent for group, spent in trace.exposed_by_group.items()
                  if run.dimensions.get(group, "unknown") == dimension}
        for group, spent in sorted(groups.items(), key=lambda each: -each[1])[:3]:
            share = f"{seconds(spent)} exposed of {seconds(trace.split.window_s)}"
            yield Evidence(f"group {group or 'without a name'}: {share}: {trace.split.window}", Place(file=trace.file))
    if not run.traces:
        ranks = [each for each in run.splits if each.exposed_communication_s and each.rank is not None]
        for each in sorted(ranks, key=lambda each: -(each.exposed_communication_s or 0.0))[:3]:
            exposed = seconds(each.exposed_communication_s or 0.0)
            yield Evidence(f"rank {each.rank}: {exposed} exposed of {seconds(each.window_s)}", Place(file=each.file))


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
        yield from judge_setup(setup, known)
    for table in run.bandwidths:
        yield from judge_table(table, known)
