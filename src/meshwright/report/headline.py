"""What was asked, and the figures that answer it; an estimate without calibration says so beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.report.pieces import Pieces
from meshwright.words import count, gib, gib_of, integer, percent, plural, rate, seconds, tflops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate

UNCALIBRATED = "UNCALIBRATED"
LIKELY = 0.5
"""Below it, a layout more likely than not does not run."""
CONVENTIONS = {
    "causal": "causal half of attention, no recompute",
    "full": "full attention, no recompute",
    "megatron": "full attention and padded vocabulary (Megatron), no recompute",
}


def case_header(case: Case) -> Iterator[RenderableType]:
    """Model, cluster, batch and numbers of a case."""
    model, cluster, batch, training = case.model, case.cluster, case.batch, case.training
    experts = model.experts
    active = f" ({count(active_parameters(model))} active)" if experts else ""
    routed = f", {experts.num_experts} experts, {experts.experts_per_token} per token" if experts else ""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row(
        "model",
        Text.assemble(
            (model.name, "bold"),
            f"  {count(total_parameters(model))} parameters{active}, {plural(model.num_layers, 'layer')}{routed}",
        ),
    )
    if model.beside:
        grid.add_row("", Text(f"the language model alone: {', '.join(model.beside)} is in no figure here; a tower that is trained "
                              "is described in YAML (docs/adding-a-model.md)", style="yellow"))
    if model.assumed:
        grid.add_row("", Text(f"assumed, not published: {', '.join(model.assumed)}", style="yellow"))
    grid.add_row(
        "cluster",
        Text.assemble(
            (f"{integer(cluster.num_devices)} x {cluster.device.name}", "bold"),
            f"  {plural(cluster.num_nodes, 'node')} of {cluster.devices_per_node}, ",
            f"{gib(case.capacity_bytes)} usable per device",
        ),
    )
    sequences = plural(batch.global_batch_sequences, "sequence" if batch.packing is None else "pack")
    if batch.packing is not None:
        sequences = f"{batch.samples:,.6g} samples in {sequences}"
    padding = f", {percent(batch.padding_ratio)} of them padding" if batch.packing else ""
    grid.add_row(
        "step",
        Text.assemble(
            (f"{sequences} x {integer(batch.sequence_tokens)} tokens", "bold"), f" = {count(batch.tokens)} tokens{padding}"
        ),
    )
    grid.add_row(
        "training",
        f"{training.task}, {training.precision.name}, {training.optimizer.name}, as {case.implementation.name} runs it",
    )
    yield Padding(grid, (1, 0, 0, 0))


def headline(estimate: Estimate, title: str = "") -> Iterator[RenderableType]:
    """A layout and its figures: time, MFU, throughput, memory; then what MFU means here."""
    first = Text(f"{title}  " if title else "", style="bold")
    first.append(estimate.label, style="bold cyan")
    yield Padding(first, (1, 0, 0, 0))
    step = Text.assemble(
        (f"{seconds(estimate.step_s)} per step", "bold green" if estimate.fits else "bold red"),
        _between(_steps(estimate), seconds),
    )
    faster = [estimate.step_s / each for each in reversed(_steps(estimate))]
    share = [min(1.0, estimate.mfu_ratio * each) for each in faster]
    speeds = ((estimate.tokens_per_s_per_device, "tokens/s/device"), (estimate.tokens_per_s, "tokens/s"))
    if not estimate.calibrated:
        step.append("  ").append(UNCALIBRATED, style="bold black on yellow")
    yield Pieces(
        pieces=(
            step, Text.assemble((f"{percent(estimate.mfu_ratio)} MFU", "bold"), _between(share, percent)),
            *(f"{rate(speed)} {unit}{_between([speed * each for each in faster], rate)}" for speed, unit in speeds),
        )
    )
    yield from _stalled(estimate)
    yield Pieces(pieces=_memory(estimate))
    if estimate.interval is not None:
        yield Pieces(pieces=_chances(estimate, estimate.interval.level))
    parts = [
        f"effective {rate(estimate.effective_tokens_per_s_per_device)} tokens/s/device without bubble, communication and host",
        _bubble(estimate), f"HFU {percent(estimate.hfu_ratio)}",
    ]
    if estimate.linearity_ratio is not None:
        baseline = estimate.linearity_baseline_devices
        parts.append(f"linearity {estimate.linearity_ratio:.2f}" + (f" against {baseline} devices" if baseline else ""))
    parts.append(f"{rate(estimate.samples_per_s)} samples/s")
    if estimate.host_memory_per_node_bytes > 0:
        parts.append(f"host memory {gib(estimate.host_memory_per_node_bytes)} per node")
    yield Pieces(pieces=parts)
    if estimate.linearity_baseline_label not in (None, estimate.label):
        yield Text(f"  linearity compares with {estimate.linearity_baseline_label}", style="dim")
    yield Pieces(pieces=(*convention(estimate), f"calibration {estimate.calibration}"), style="dim")


def _stalled(estimate: Estimate) -> Iterator[RenderableType]:
    """The second time that the layout may take, where it may take one of two."""
    if (second := estimate.stall) is not None:
        both = f"; 90 % of all runs{_between(second.either_s, seconds)}" if second.either_s else ""
        share = percent(second.probability, 0)
        yield Text(f"  in {share} of runs pipeline messages stall: {seconds(second.step_s)} per step{both}", style="yellow")


def _bubble(estimate: Estimate) -> str:
    """The wait of the busiest stage; where there are several, what equal stages would idle, and the wait of all on average."""
    share = f"bubble {percent(estimate.bubble_ratio)}"
    if len(estimate.stages) == 1:
        return share
    formula, mean = percent(estimate.bubble_formula_ratio), percent(estimate.mean_idle_ratio)
    return f"{share} on the busiest stage, {mean} on the mean one, {formula} by formula"


def _memory(estimate: Estimate) -> list[Text | str]:
    """Reserved against capacity, where it is fullest, and how far it may reach."""
    reserved, capacity = estimate.memory_reserved_bytes, estimate.memory_capacity_bytes
    pieces: list[Text | str] = [f"memory {gib_of(reserved, capacity)} ({percent(reserved / capacity, 0)})"]
    if not estimate.fits:
        short = f": short of {gib(reserved - capacity)}" if reserved > capacity else ""
        pieces.append(Text(f"DOES NOT FIT{short}", style="bold red"))
    peaks = estimate.interval.memory_peak_bytes if estimate.interval else ()
    pieces.append(f"stage {estimate.peak_stage} is fullest, {gib(estimate.memory_peak_bytes)} allocated{_between(peaks, gib)}")
    pieces.append(f"upper bound {gib(estimate.memory_upper_bytes)}")
    return pieces


def _steps(estimate: Estimate) -> Sequence[float]:
    """Shortest and longest step of the interval; nothing without one."""
    return estimate.interval.step_s if estimate.interval else ()


def _between(ends: Sequence[float], words: Callable[[float], str]) -> str:
    """`` (44.8-49.0 %)``: the ends of an interval, the unit once where both have the same; nothing without an interval."""
    if not ends:
        return ""
    low, high = (words(each) for each in ends)
    number, gap, unit = low.partition(" ")
    return f" ({number if gap and high.endswith(f' {unit}') else low}-{high})"


def _chances(estimate: Estimate, level: float) -> list[Text | str]:
    """What the brackets hold, and how likely the layout runs; 0 is said by a framework that refuses, never by a calibration."""
    fits, finishes = estimate.memory_fit_probability, estimate.fit_probability
    ends = f"a run finishes with {chance(finishes)} probability" if finishes else "no run finishes: refused, see the notes"
    return [
        f"brackets hold {percent(level, 0)} of runs",
        Text(f"fits in memory with {chance(fits)} probability", style="bold red" if fits < LIKELY else ""),
        Text(ends, style="bold red" if finishes < LIKELY else ""),
    ]


def chance(ratio: float) -> str:
    """A probability; only what is certain is 0 or 100 %."""
    if 0.0 < ratio < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < ratio < 1.0 else percent(ratio, 0)


def standing(case: Case, estimate: Estimate) -> Iterator[RenderableType]:
    """What stands behind the figures: a profile of the cluster; runs of this very kind, of kin, or none; nothing for the priors."""
    known = case.calibration.uncertainty
    measured = case.cluster.measured
    if measured is not None:
        yield Text(f"  figures of {measured.name} measured by a profile of {measured.version}", style="dim")
    grade = (estimate.grades or {}).get("step_s")
    if known is None or grade is None:
        return
    device, framework = case.cluster.device, case.implementation.family
    cell = f"{device.name} under {framework} in {case.training.precision.name}"
    runs = {level: known.seen.get(level, 0) for level in ("cell", "device", "framework", "family")}
    if grade == "calibrated":
        yield Text(f"  calibrated on {plural(runs['cell'], 'run')} of {cell}", style="dim")
        return
    names = {"device": device.name, "family": f"{device.family} devices", "framework": framework}
    kin = ", ".join(f"{plural(runs[level], 'run')} of {name}" for level, name in names.items() if runs[level])
    words = f"KIN  no run of {cell} stands behind this; borrowed from its kin: {kin}"
    if grade != "kin":
        words = f"ANALYTIC  no run of {cell} or of its kin stands behind this: formulas and priors, moved by what all runs share"
    yield Padding(Text(words, style="bold yellow"), (0, 0, 0, 2))


def convention(estimate: Estimate) -> tuple[str, str]:
    """What MFU counts, and the peak that it is relative to."""
    counted = CONVENTIONS.get(estimate.flops_convention, estimate.flops_convention)
    return f"MFU counts {counted}", f"over the dense {estimate.peak_dtype} peak of {tflops(estimate.peak_flops_per_s)}"
