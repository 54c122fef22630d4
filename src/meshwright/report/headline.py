"""What was asked, and the figures that answer it; an estimate without calibration says so beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.report.pieces import Pieces
from meshwright.report.words import count, gib, gib_of, integer, percent, plural, rate, seconds, tflops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate

UNCALIBRATED = "UNCALIBRATED"
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
    sequences = plural(batch.global_batch_sequences, "sequence")
    grid.add_row(
        "step",
        Text.assemble((f"{sequences} x {integer(batch.sequence_tokens)} tokens", "bold"), f" = {count(batch.tokens)} tokens"),
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
    step = Text(f"{seconds(estimate.step_s)} per step", style="bold green" if estimate.fits else "bold red")
    if not estimate.calibrated:
        step.append("  ").append(UNCALIBRATED, style="bold black on yellow")
    yield Pieces(
        pieces=(
            step, Text(f"{percent(estimate.mfu_ratio)} MFU", style="bold"),
            f"{rate(estimate.tokens_per_s_per_device)} tokens/s/device", f"{rate(estimate.tokens_per_s)} tokens/s",
        )
    )  # fmt: skip
    yield Pieces(pieces=_memory(estimate))
    parts = [f"bubble {percent(estimate.bubble_ratio)}", f"HFU {percent(estimate.hfu_ratio)}"]
    if estimate.linearity_ratio is not None:
        baseline = estimate.linearity_baseline_devices
        parts.append(f"linearity {estimate.linearity_ratio:.2f}" + (f" against {baseline} devices" if baseline else ""))
    parts.append(f"{rate(estimate.samples_per_s)} sequences/s")
    if estimate.host_memory_per_node_bytes > 0:
        parts.append(f"host memory {gib(estimate.host_memory_per_node_bytes)} per node")
    yield Pieces(pieces=parts)
    yield Pieces(pieces=(*convention(estimate), f"calibration {estimate.calibration}"), style="dim")


def _memory(estimate: Estimate) -> list[Text | str]:
    """Reserved against capacity, where it is fullest, and how far it may reach."""
    reserved, capacity = estimate.memory_reserved_bytes, estimate.memory_capacity_bytes
    pieces: list[Text | str] = [f"memory {gib_of(reserved, capacity)} ({percent(reserved / capacity, 0)})"]
    if not estimate.fits:
        short = f": short of {gib(reserved - capacity)}" if reserved > capacity else ""
        pieces.append(Text(f"DOES NOT FIT{short}", style="bold red"))
    pieces.append(f"stage {estimate.peak_stage} is fullest, {gib(estimate.memory_peak_bytes)} allocated")
    pieces.append(f"upper bound {gib(estimate.memory_upper_bytes)}")
    return pieces


def convention(estimate: Estimate) -> tuple[str, str]:
    """What MFU counts, and the peak that it is relative to."""
    counted = CONVENTIONS.get(estimate.flops_convention, estimate.flops_convention)
    return f"MFU counts {counted}", f"over the dense {estimate.peak_dtype} peak of {tflops(estimate.peak_flops_per_s)}"
