"""The device waits for the host: for data, or for somebody to launch work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Evidence, Finding, severity_of
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run
    from meshwright.domain.observed import RankTrace

DATA_RATIO, DATA_S = 0.05, 0.010
"""Data loading is a finding from 5 % of the step (Kineto's own plug-in), or 10 ms of it (MindStudio's advisor, from 1 %)."""
HOST_RATIO = 0.10
"""The device waits for launches (MindStudio's advisor)."""
SMALL_RATIO = 0.20
"""Of the busy time in kernels under 10 us: our judgement; that they are worth a look is TraceLens's."""


def data(run: Run) -> Iterator[Finding]:
    """Data loading that the device waits for."""
    split = run.split
    if split is None or split.data_ratio is None:
        return
    lost_s = split.data_ratio * split.step_s
    if split.data_ratio < DATA_RATIO and (lost_s < DATA_S or split.data_ratio < 0.01):
        return
    yield Finding(
        message=Message(
            "data.loading",
            "the device waits {time} of each step of {step} for data ({share})",
            {"time": seconds(lost_s), "step": seconds(split.step_s), "share": percent(split.data_ratio)},
        ),
        severity=severity_of(split.data_ratio),
        loss_ratio=split.data_ratio,
        evidence=(*_loaders(run), *_timers(run, "data")),
        remedies=remedies("data.loading", run.framework),
        refuted_by="synthetic data give the same step time",
        source="pytorch/kineto tb_plugin data.py; Ascend/mstt dataloader.yaml",
    )


def _loaders(run: Run) -> Iterator[Evidence]:
    for trace in run.traces:
        if spent := trace.host.get("dataloader"):
            yield Evidence(
                f"{seconds(spent)} of {seconds(trace.split.window_s)} in calls of the data loader: {trace.split.window}",
                Place(file=trace.file, t0_s=trace.steps[0].start_s if trace.steps else None),
            )


def _timers(run: Run, part: str) -> Iterator[Evidence]:
    from meshwright.readers.logs.parts import part_of

    if run.steady is None or run.log is None or run.traces:
        return
    for name, spent in run.steady.parts.items():
        if part_of(name) == part:
            yield Evidence(
                f"timer {name}: {seconds(spent)} of {seconds(run.steady.step_s)}",
                Place(file=run.log.file, line=run.steady.steps[0].line),
            )


def host(run: Run) -> Iterator[Finding]:
    """Kernels that come too late, calls that wait for the device, kernels too small to fill it."""
    split = run.split
    if split is not None and split.host_ratio is not None and split.host_ratio >= HOST_RATIO:
        causes: dict[str, float] = {}
        for trace in run.traces:
            for name in ("host", "launch", "sync"):
                causes[name] = causes.get(name, 0.0) + trace.idle.get(name, 0.0)
        synchronised = causes.get("sync", 0.0) > 0.5 * sum(causes.values())
        kind = "host.sync" if synchronised else "host.launch"
        words = (
            "the device idles {share} of the time behind calls that wait for it"
            if synchronised
            else "the device idles {share} of the time because the host launches too slowly"
        )
        yield Finding(
            message=Message(kind, words, {"share": percent(split.host_ratio)}),
            severity=severity_of(split.host_ratio),
            loss_ratio=split.host_ratio,
            evidence=tuple(_idle(run)),
            remedies=remedies(kind, run.framework),
            refuted_by="a larger micro-batch makes the step longer in proportion",
            source="Ascend/mstt advisor: idle above 10 %",
        )
    for trace in run.traces:
        busy = trace.split.compute_s
        small = min(1.0, trace.small_kernels_s / busy) if busy else 0.0  # kernels of several streams overlap
        if small > SMALL_RATIO:
            share = small * busy / trace.split.window_s
            yield Finding(
                message=Message(
                    "kernels.small",
                    "{share} of the compute is in kernels under 10 us: they are too small to fill the device",
                    {"share": percent(small)},
                ),
                severity="advice",
                loss_ratio=share,
                remedies=remedies("kernels.small", run.framework),
                evidence=tuple(_small(trace)),
            )
            break


def _small(trace: RankTrace) -> Iterator[Evidence]:
    """The kernels of compute that are short on the mean and take most of the time."""
    from meshwright.readers.traces.kernels import SMALL_KERNEL_US

    short = [each for each in trace.kernels if each.kind == "compute" and each.total_s < each.count * SMALL_KERNEL_US * 1e-6]
    for each in short[:3]:
        yield Evidence(f"{each.name[:80]}: {each.count:,} times, {seconds(each.total_s)}", Place(file=trace.file))


def idle(run: Run) -> Iterator[Finding]:
    """A device that idles for a reason that the files do not tell."""
    split = run.split
    if split is None or split.idle_ratio is None or split.idle_ratio < HOST_RATIO or run.hang is not None:
        return
    yield Finding(
        message=Message(
            "device.idle",
            "the device idles {share} of the time: it waits for its host, for data or for other ranks, and does not compute",
            {"share": percent(split.idle_ratio)},
        ),
        severity=severity_of(split.idle_ratio),
        loss_ratio=split.idle_ratio,
        evidence=tuple(_rows(run)),
        remedies=remedies("device.idle", run.framework),
        source="Ascend/mstt advisor: free time above 10 %",
    )


def _rows(run: Run) -> Iterator[Evidence]:
    ranks = sorted((each for each in run.splits if each.window_s), key=lambda each: -each.idle_s / each.window_s)
    for each in ranks[:3]:
        who = f"rank {each.rank}" if each.rank is not None else "a stage"
        yield Evidence(f"{who} idles {percent(each.idle_s / each.window_s)} of {seconds(each.window_s)}", Place(file=each.file))
    if not ranks:
        yield from _idle(run)


def _idle(run: Run) -> Iterator[Evidence]:
    for trace in run.traces:
        told = ", ".join(
            f"{name} {seconds(spent)}" for name, spent in sorted(trace.idle.items(), key=lambda each: -each[1]) if spent > 0.0
        )
        yield Evidence(f"idle {seconds(trace.split.idle_s)} of {seconds(trace.split.window_s)}: {told}", Place(file=trace.file))
