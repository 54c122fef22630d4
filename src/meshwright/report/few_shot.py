"""What own runs did to a calibration, as a person reads it: what moved, how sure it is, what contradicts, what to measure next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Run, Section, line, table
from meshwright.words import percent, plural, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.few_shot import FewShot
    from meshwright.report.blocks import Told

MOST = 8
"""Constants that are shown."""
WORDS = {
    "gemm_ratio": "share of the BF16 peak in large matrix products",
    "gemm_fp8_ratio": "share of the FP8 peak in large matrix products",
    "gemm_fp4_ratio": "share of the FP4 peak in large matrix products",
    "gemm_setup_k": "what a matrix product costs before it is at speed",
    "gemm_wave_ratio": "loss in unfilled last waves", "gemm_weight_gradient_ratio": "speed of weight gradients",
    "unaligned_ratio": "speed of unaligned products", "grouped_gemm_ratio": "speed of the experts' grouped products",
    "attention_forward_ratio": "speed of attention, forward", "attention_backward_ratio": "speed of attention, backward",
    "memory_ratio": "share of the memory bandwidth", "expert_memory_ratio": "speed of moving routed tokens",
    "kernel_gap_s": "gap between kernels", "launch_s": "host time of a kernel's launch", "graph_launch_s": "launch inside a graph",
    "collective_host_s": "host time of a collective", "collective_skew_s": "wait for the slowest host of a tensor group",
    "expert_sync_s": "wait for token counts in a mixture layer", "scale_up_ratio": "share of the bandwidth inside a node",
    "network_ratio": "share of the network bandwidth", "collective_fixed_s": "start of a collective",
    "peer_s": "start of a message",
    "fabric_slope": "loss of network bandwidth with more nodes", "stall_s": "length of a stalled pipeline message",
    "stall_nodes": "nodes from which messages stall", "stall_tensor_domains": "nodes of a tensor group from which messages stall",
    "stall_replicated_nodes": "nodes from which messages stall without sharded states",
    "stall_replicated_microbatches": "micro-batches from which messages stall without sharded states",
    "contention_slowdown": "slowdown of compute beside network traffic",
    "contention_slowdown_scale_up": "slowdown of compute beside traffic inside a node",
    "overlap_ratio": "share of communication that can be hidden", "straggler_slope": "wait for the slowest of many nodes",
    "step_host_s": "host time of a step", "microbatch_host_s": "host time of a micro-batch",
    "pressure_edge_ratio": "memory from which the allocator retries", "pressure_slowdown": "slowdown by those retries",
    "scan_ratio": "speed of scans of linear layers",
    "expert_load_spread": "spread of tokens over experts", "expert_host_s": "host time of a mixture layer",
    "plain_host_ratio": "host time of untuned launches", "deterministic_scatter_ratio": "deterministic passes over routed tokens",
    "deterministic_attention_ratio": "deterministic backward of attention",
    "fallback_score_bytes": "traffic of attention that fell back",
    "expert_headroom_ratio": "busiest expert over the mean, in memory",
    "context_bytes": "memory of the device context", "communicator_bytes": "memory of a communicator",
    "fragmentation_ratio": "memory lost to fragmentation", "run_ahead_ratio": "memory held because the host runs ahead",
}
"""Constants that a fit may move, in words."""


def few_shot_report(found: FewShot) -> Iterator[Told]:
    """What own runs did."""
    for each in found.conflicts:
        if each.physics:
            yield line(Run("left out ", "bad", bold=True), each.why.words)
        else:
            yield line(Run("conflict ", "bad", bold=True), f"{each.why.words} (kept, and trusted less where they disagree)")
    own, before, after = plural(found.n, "own run"), found.interval_ratio_before, found.interval_ratio_after
    if before is not None and after is not None:
        yield line(f"{own}: the 90 % interval of a step like these is now {_ends(after)}, it was {_ends(before)}")
    if found.moved:
        several = len({move.cell for move in found.moved}) > 1
        rows = [
            (move.constant, *(_of(move.cell),) * several, WORDS.get(move.constant, ""), f"{move.before:.3g}", f"{move.after:.3g}",
             signed(move.change_ratio))
            for move in found.moved[:MOST]
        ]
        figures = [each + several for each in (2, 3, 4)]
        yield Section(title=f"What {own} moved", blocks=(
            table(("constant", *("of",) * several, "in words", "from", "to", "change"), rows, right=figures, whole=figures),
        ))
        if len(found.moved) > MOST:
            yield line(f"{len(found.moved) - MOST} more moved less", kind="small")
    else:
        yield line(f"{own} moved no constant by half a percent: the calibration knew them")
    if (following := found.next_run) is not None:
        yield line(
            Run("Measure next: ", bold=True), Run(following.label, "accent", bold=True),
            f"   {following.model} on {plural(following.devices, 'device')}: of the best {following.candidates} plans it says most "
            f"about which is fastest (their gaps {percent(following.narrows_ratio)} less uncertain)", above=True,
        )
    if found.to_measure:
        named, less = ", ".join(f"{each.id} ({each.label})" for each in found.to_measure), 1.0 - found.to_measure[-1].left_ratio
        yield line(
            Run("Of the rows without a result: ", bold=True), named,
            f"   say most about the others: with them {percent(less)} less of all errors is unknown",
            above=True,
        )


def _of(cell: str) -> str:
    """Device, framework and precision of a cell, in words."""
    return " ".join(cell.split("|"))


def _ends(ratio: float) -> str:
    """An interval that is so many times as high as low, as plus and minus."""
    return f"-{percent(1.0 - ratio**-0.5, 0)} to +{percent(ratio**0.5 - 1.0, 0)}"
