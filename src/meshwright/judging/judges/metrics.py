"""Metrics: throughput, MFU and its causes, linearity, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.judging.finding import Figure, Ruling, ratio
from meshwright.judging.losses import causes
from meshwright.judging.predicates import does_not_apply, judges
from meshwright.units import count
from meshwright.words import percent, seconds, speed

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts

DEVICE_120 = "a100"
"""The device of the guide's target."""


def _rate(name: str, value: float) -> Figure:
    return Figure(name=name, value=value, unit="1/s")


@judges("tokens-per-device")
def tokens_per_device(facts: Facts, _: Rule) -> Ruling:
    """The metric, computed."""
    batch, estimate = facts.case.batch, facts.estimate
    return Ruling(
        verdict="holds", figure=_rate("tokens_per_s_per_device", estimate.tokens_per_s_per_device),
        sentence=f"{batch.global_batch_sequences} x {batch.sequence_tokens:,} / ({seconds(estimate.step_s)} x "
        f"{facts.layout.world}) = "
        f"{speed(estimate.tokens_per_s_per_device)} tokens/s a device",
    )


@judges("samples-per-second")
def samples_per_second(facts: Facts, _: Rule) -> Ruling:
    """The metric, computed."""
    layout, estimate = facts.layout, facts.estimate
    each = facts.case.batch.samples / layout.data_parallel
    return Ruling(
        verdict="holds", figure=_rate("samples_per_s", estimate.samples_per_s),
        sentence=f"{each:.6g} samples a replica x {layout.data_parallel} replicas / {seconds(estimate.step_s)} = "
        f"{estimate.samples_per_s:.4g} samples/s",
    )


@judges("effective-throughput")
def effective_throughput(facts: Facts, _: Rule) -> Ruling:
    """Throughput as if bubble, exposed communication and host cost nothing."""
    ceiling, reached = facts.estimate.effective_tokens_per_s_per_device, facts.estimate.tokens_per_s_per_device
    return Ruling(
        verdict="holds", figure=_rate("effective_tokens_per_s_per_device", ceiling),
        sentence=f"without bubble, exposed communication and host ({percent(1.0 - reached / ceiling)} of the step) "
        f"{speed(ceiling)} instead of {speed(reached)} tokens/s a device: the ceiling of every change to the layout",
    )


@judges("mfu")
def mfu(facts: Facts, _: Rule) -> Ruling:
    """MFU with its convention and peak."""
    estimate = facts.estimate
    return Ruling(
        verdict="holds", figure=ratio("mfu_ratio", estimate.mfu_ratio),
        sentence=f"{percent(estimate.mfu_ratio)} of {speed(estimate.peak_flops_per_s / 1e12)} TFLOP/s "
        f"({estimate.peak_dtype}, dense), convention "
        f"{estimate.flops_convention}; with recompute (HFU) {percent(estimate.hfu_ratio)}",
    )


@judges("mfu-causes")
def mfu_causes(facts: Facts, _: Rule) -> Ruling:
    """The gap by the guide's five causes."""
    parts = [cause for cause in causes(facts.estimate) if cause.name != "useful work"]
    largest = max(parts, key=lambda cause: cause.points_percent)
    listed = ", ".join(f"{cause.name} {cause.points_percent:.1f}" for cause in parts)
    return Ruling(
        verdict="holds", figure=ratio("largest_cause_ratio", largest.points_percent / 100.0),
        sentence=f"points lost of 100: {listed}; most to {largest.name} ({largest.largest})",
    )


@judges("linearity")
def linearity(facts: Facts, _: Rule) -> Ruling:
    """Tokens per second and device here over the same on the fewest nodes on which the model fits."""
    if facts.linearity is None:
        return does_not_apply(facts, f"{facts.layout.world} devices: no smaller number of whole nodes fits the model")
    value, devices = facts.linearity
    return Ruling(
        verdict="holds" if value > 0.8 else "fails",
        figure=ratio("linearity_ratio", value),
        sentence=f"linearity {value:.2f} against {devices} devices at the same global batch, "
        + ("above 0.8" if value > 0.8 else "not above 0.8")
        + ("; above 1 because the baseline is short of memory and pays for it" if value > 1.02 else ""),
    )


@judges("linearity-formula")
def linearity_formula(facts: Facts, _: Rule) -> Ruling:
    """The formula in cards beside the one in machines."""
    nodes, node = facts.case.cluster.num_nodes, facts.case.cluster.devices_per_node
    value = facts.linearity[0] if facts.linearity is not None else 1.0
    return Ruling(
        verdict="wrong", figure=ratio("linearity_ratio", value / node),
        sentence=f"with {nodes * node} cards instead of {nodes} machines the same run would score {value / node:.3f} "
        f"instead of {value:.2f}",
    )


@judges("utilisation")
def utilisation(facts: Facts, _: Rule) -> Ruling:
    """What nvidia-smi would show against what is used."""
    estimate = facts.estimate
    return Ruling(
        verdict="wrong", figure=ratio("mfu_ratio", estimate.mfu_ratio),
        sentence=f"a kernel that waits counts as busy, so nvidia-smi shows near 100 % here, at "
        f"{percent(estimate.mfu_ratio)} MFU with "
        f"{percent(facts.communication_ratio)} exposed communication and {percent(estimate.bubble_ratio)} bubble",
    )


@judges("target-120")
def target_120(facts: Facts, _: Rule) -> Ruling:
    """The guide's target where the device is an A100."""
    value = facts.estimate.model_flops_per_s_per_device / 1e12
    if not facts.case.cluster.device.name.startswith(DEVICE_120):
        return does_not_apply(
            facts, f"said of an A100; here {speed(value)} TFLOP/s at {percent(facts.estimate.mfu_ratio)} MFU, "
            "120 on an A100 is 38 %",
        )
    return Ruling(
        verdict="holds" if value >= 120 else "fails",
        figure=Figure(name="model_flops_per_s_per_device", value=value * 1e12, unit="FLOP/s"),
        sentence=f"{speed(value)} TFLOP/s a device are predicted, {'at least' if value >= 120 else 'less than'} 120",
    )


@judges("tokens-at-150")
def tokens_at_150(facts: Facts, _: Rule) -> Ruling:
    """Tokens per second that 150 TFLOP/s per device would be for this model."""
    estimate = facts.estimate
    work = estimate.model_flops_per_s_per_device / estimate.tokens_per_s_per_device
    each = 150e12 / work
    return Ruling(
        verdict="wrong", figure=_rate("tokens_per_s", each * facts.layout.world),
        sentence=f"150 TFLOP/s a device are {each:,.0f} tokens/s a device with this model ({work / 1e9:,.0f} GFLOP a "
        f"token), {count(each * facts.layout.world)} on "
        f"{facts.layout.world} devices; predicted here: {count(estimate.tokens_per_s)}",
    )
