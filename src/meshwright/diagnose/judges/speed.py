"""Metrics, overlap, kernels: what the guides say about time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Answer, Figure, number, ratio
from meshwright.diagnose.judging import change, does_not_apply, judges, percent
from meshwright.diagnose.losses import causes
from meshwright.diagnose.neighbours import OFF
from meshwright.plan.estimate import sequence_work
from meshwright.units import count, seconds

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.diagnose.facts import Facts

DEVICE_120 = "a100"
"""The device of the guide's target."""


def _rate(name: str, value: float) -> Figure:
    return Figure(name=name, value=value, unit="1/s")


@judges("tokens-per-device")
def tokens_per_device(facts: Facts, _: Rule) -> Answer:
    """The metric, computed."""
    batch, estimate = facts.case.batch, facts.estimate
    return Answer(
        verdict="holds", figure=_rate("tokens_per_s_per_device", estimate.tokens_per_s_per_device),
        sentence=f"{batch.global_batch_sequences} x {batch.sequence_tokens:,} / ({seconds(estimate.step_s)} x {facts.layout.world}) = "
        f"{estimate.tokens_per_s_per_device:,.0f} tokens/s a device",
    )  # fmt: skip


@judges("samples-per-second")
def samples_per_second(facts: Facts, _: Rule) -> Answer:
    """The metric, computed."""
    layout, estimate = facts.layout, facts.estimate
    each = layout.microbatch_sequences * layout.num_microbatches
    return Answer(
        verdict="holds", figure=_rate("samples_per_s", estimate.samples_per_s),
        sentence=f"{each} sequences a replica x {layout.data_parallel} replicas / {seconds(estimate.step_s)} = {estimate.samples_per_s:.4g} samples/s",
    )  # fmt: skip


@judges("effective-throughput")
def effective_throughput(facts: Facts, _: Rule) -> Answer:
    """Throughput as if bubble and exposed communication cost nothing."""
    lost = facts.estimate.bubble_ratio + facts.communication_ratio
    ceiling = facts.estimate.tokens_per_s_per_device / max(1e-9, 1.0 - lost)
    return Answer(
        verdict="holds", figure=_rate("tokens_per_s_per_device", ceiling),
        sentence=f"without bubble and exposed communication ({percent(lost)} of the step) {ceiling:,.0f} instead of "
        f"{facts.estimate.tokens_per_s_per_device:,.0f} tokens/s a device: the ceiling of every change to the layout",
    )  # fmt: skip


@judges("mfu")
def mfu(facts: Facts, _: Rule) -> Answer:
    """MFU with its convention and peak."""
    estimate = facts.estimate
    return Answer(
        verdict="holds", figure=ratio("mfu_ratio", estimate.mfu_ratio),
        sentence=f"{percent(estimate.mfu_ratio)} of {estimate.peak_flops_per_s / 1e12:.0f} TFLOP/s ({estimate.peak_dtype}, dense), convention "
        f"{estimate.flops_convention}; with recompute (HFU) {percent(estimate.hfu_ratio)}",
    )  # fmt: skip


@judges("mfu-causes")
def mfu_causes(facts: Facts, _: Rule) -> Answer:
    """The gap by the guide's five causes."""
    parts = [cause for cause in causes(facts.estimate) if cause.name != "useful work"]
    largest = max(parts, key=lambda cause: cause.points_percent)
    listed = ", ".join(f"{cause.name} {cause.points_percent:.1f}" for cause in parts)
    return Answer(
        verdict="holds", figure=ratio("largest_cause_ratio", largest.points_percent / 100.0),
        sentence=f"points lost of 100: {listed}; most to {largest.name} ({largest.largest})",
    )  # fmt: skip


@judges("linearity")
def linearity(facts: Facts, _: Rule) -> Answer:
    """Tokens per second and device here over the same on the fewest nodes on which the model fits."""
    if facts.linearity is None:
        return does_not_apply(facts, f"{facts.layout.world} devices: no smaller number of whole nodes fits the model")
    value, devices = facts.linearity
    return Answer(
        verdict="holds" if value > 0.8 else "fails", figure=ratio("linearity_ratio", value),
        sentence=f"linearity {value:.2f} against {devices} devices at the same global batch, " + ("above 0.8" if value > 0.8 else "not above 0.8")
        + ("; above 1 because the baseline is short of memory and pays for it" if value > 1.02 else ""),
    )  # fmt: skip


@judges("linearity-formula")
def linearity_formula(facts: Facts, _: Rule) -> Answer:
    """The formula in cards beside the one in machines."""
    nodes, node = facts.case.cluster.num_nodes, facts.case.cluster.devices_per_node
    value = facts.linearity[0] if facts.linearity is not None else 1.0
    return Answer(
        verdict="wrong", figure=ratio("linearity_ratio", value / node),
        sentence=f"with {nodes * node} cards instead of {nodes} machines the same run would score {value / node:.3f} instead of {value:.2f}",
    )  # fmt: skip


@judges("overlap-helps")
def overlap_helps(facts: Facts, _: Rule) -> Answer:
    """This layout with all overlap off."""
    on = facts.layout if facts.layout.overlap != OFF else replace(facts.layout, overlap=replace(OFF, gradient_reduce=True, parameter_gather=True))
    with_it, without = facts.trial(on), facts.trial(replace(facts.layout, overlap=OFF))
    return Answer(
        verdict="holds" if without.step_s >= with_it.step_s * 0.9999 else "fails", figure=ratio("step_change_ratio", without.step_s / with_it.step_s - 1.0),
        sentence=f"without any overlap the step is {change(without.step_s, with_it.step_s)}: {seconds(without.step_s)} instead of {seconds(with_it.step_s)}",
    )  # fmt: skip


@judges("overlap-gradients")
def overlap_gradients(facts: Facts, _: Rule) -> Answer:
    """This layout with and without the overlap of gradients."""
    if facts.layout.data_parallel * facts.layout.context_parallel == 1:
        return does_not_apply(facts, "one replica: no gradients to reduce")
    on, off = (facts.trial(replace(facts.layout, overlap=replace(facts.layout.overlap, gradient_reduce=each))) for each in (True, False))
    return Answer(
        verdict="holds" if on.step_s <= off.step_s * 1.0001 else "fails", figure=ratio("step_change_ratio", off.step_s / on.step_s - 1.0),
        sentence=f"gradients reduced after the backward instead of beside it: {change(off.step_s, on.step_s)}, exposed data parallelism "
        f"{seconds(on.estimate.time.data_parallel_exposed_s)} -> {seconds(off.estimate.time.data_parallel_exposed_s)}",
    )  # fmt: skip


@judges("overlap-off-first")
def overlap_off_first(facts: Facts, _: Rule) -> Answer:
    """What waiting costs, and which switches change any arithmetic."""
    overlap = facts.layout.overlap
    without = facts.trial(replace(facts.layout, overlap=OFF))
    exact = facts.trial(replace(facts.layout, overlap=replace(OFF, gradient_reduce=True, parameter_gather=True, point_to_point=True)))
    cost, rest = without.step_s / exact.step_s - 1.0, exact.step_s / facts.step_s - 1.0
    tail = f"; tiled tensor and expert overlap, which may reorder sums, is worth {percent(max(0.0, rest))}" if overlap.tensor or overlap.expert else ""
    return Answer(
        verdict="fails" if cost > 0.005 else "holds", figure=ratio("step_change_ratio", cost),
        sentence=f"leaving off gradient, parameter and point-to-point overlap, which change no arithmetic, costs {percent(cost)}{tail}",
    )  # fmt: skip


@judges("overlap-not-free")
def overlap_not_free(facts: Facts, _: Rule) -> Answer:
    """This layout as if communication took no units from compute."""
    calibration = facts.case.calibration
    constants = replace(calibration.constants, contention_slowdown=0.0, contention_slowdown_scale_up=0.0)
    free = facts.trial(facts.layout, replace(facts.case, calibration=replace(calibration, constants=constants)))
    cost = facts.step_s / free.step_s - 1.0
    return Answer(
        verdict="holds" if cost > 0 else "does-not-apply", figure=ratio("step_change_ratio", cost),
        sentence=f"compute beside communication runs slower by {calibration.constants.contention_slowdown:.0%} (network) or "
        f"{calibration.constants.contention_slowdown_scale_up:.0%} (scale-up), together {cost:.2%} of this step",
    )  # fmt: skip


@judges("jit-optimizer")
def jit_optimizer(facts: Facts, _: Rule) -> Answer:
    """The optimizer's share of the step."""
    share = facts.estimate.time.optimizer_s / facts.step_s
    return Answer(
        verdict="holds" if share >= 0.01 else "fails", figure=ratio("optimizer_ratio", share),
        sentence=f"the optimizer takes {seconds(facts.estimate.time.optimizer_s)}, {share:.2%} of the step, over {facts.layout.optimizer_shards} shards: "
        f"that is all that compiling it could win",
    )  # fmt: skip


def _communication(facts: Facts, bound: float) -> Answer:
    value, time = facts.communication_ratio, facts.estimate.time
    parts = {
        "tensor": time.tensor_parallel_s, "context": time.context_parallel_s, "expert": time.expert_parallel_s,
        "pipeline": time.pipeline_exposed_s, "data": time.data_parallel_exposed_s,
    }  # fmt: skip
    name, most = max(parts.items(), key=lambda item: item[1])
    return Answer(
        verdict="holds" if value <= bound else "fails", figure=ratio("communication_ratio", value),
        sentence=f"exposed communication is {percent(value)} of the step, {'within' if value <= bound else 'above'} {bound:.0%}; most of it {name} parallelism "
        f"({percent(most / facts.step_s)})",
    )  # fmt: skip


@judges("communication-20")
def communication_20(facts: Facts, _: Rule) -> Answer:
    """Exposed communication against 20 %."""
    return _communication(facts, 0.20)


@judges("communication-15")
def communication_15(facts: Facts, _: Rule) -> Answer:
    """Exposed communication against 15 %."""
    return _communication(facts, 0.15)


@judges("utilisation")
def utilisation(facts: Facts, _: Rule) -> Answer:
    """What nvidia-smi would show against what is used."""
    estimate = facts.estimate
    return Answer(
        verdict="wrong", figure=ratio("mfu_ratio", estimate.mfu_ratio),
        sentence=f"a kernel that waits counts as busy, so nvidia-smi shows near 100 % here, at {percent(estimate.mfu_ratio)} MFU with "
        f"{percent(facts.communication_ratio)} exposed communication and {percent(estimate.bubble_ratio)} bubble",
    )  # fmt: skip


@judges("flash-attention")
def flash_attention(facts: Facts, _: Rule) -> Answer:
    """Attention's share of the step: what twice its speed is worth."""
    work = 3.0 * sequence_work(facts.case).attention * facts.case.batch.global_batch_sequences
    ideal = work / facts.layout.world / facts.estimate.peak_flops_per_s / facts.step_s
    share = max(0.0, ideal + facts.share("attention below peak"))
    fused = facts.case.implementation.flash_attention
    return Answer(
        verdict="holds" if fused else "fails", figure=ratio("attention_ratio", share),
        sentence=f"attention takes {percent(share)} of the step and is {'fused' if fused else 'not fused'}; a factor of 2 on it is worth "
        f"{percent(share if fused else share / 2)} of the step",
    )  # fmt: skip


@judges("torch-compile")
def torch_compile(facts: Facts, _: Rule) -> Answer:
    """Elementwise work, gaps and launches: the most that compiling could win."""
    bound = max(0.0, facts.share("elementwise", "kernel gaps", "kernel launches"))
    return Answer(
        verdict="wrong", figure=ratio("compile_bound_ratio", bound),
        sentence=f"no such flag; elementwise operators, kernel gaps and launches together are {percent(bound)} of this step, the most that compiling could win",
    )  # fmt: skip


@judges("nic-binding")
def nic_binding(facts: Facts, _: Rule) -> Answer:
    """What the network is worth: the step with half of it."""
    cluster = facts.case.cluster
    if facts.layout.world <= cluster.scale_up_devices:
        return does_not_apply(facts, f"{facts.layout.world} devices reach each other without the network")
    half = replace(cluster, network=replace(cluster.network, bytes_per_s=cluster.network.bytes_per_s / 2))
    slow = facts.trial(facts.layout, replace(facts.case, cluster=half))
    relative = slow.step_s / facts.step_s - 1.0
    return Answer(
        verdict="holds" if relative > 0.005 else "fails", figure=ratio("step_change_ratio", relative),
        sentence=f"half of the network (a rail lost, or the wrong interface) would make the step {change(slow.step_s, facts.step_s)}",
    )  # fmt: skip


@judges("target-120")
def target_120(facts: Facts, _: Rule) -> Answer:
    """The guide's target where the device is an A100."""
    value = facts.estimate.model_flops_per_s_per_device / 1e12
    if not facts.case.cluster.device.name.startswith(DEVICE_120):
        return does_not_apply(facts, f"said of an A100; here {value:.0f} TFLOP/s at {percent(facts.estimate.mfu_ratio)} MFU, 120 on an A100 is 38 %")
    return Answer(
        verdict="holds" if value >= 120 else "fails", figure=Figure(name="model_flops_per_s_per_device", value=value * 1e12, unit="FLOP/s"),
        sentence=f"{value:.0f} TFLOP/s a device are predicted, {'at least' if value >= 120 else 'less than'} 120",
    )  # fmt: skip


@judges("tokens-at-150")
def tokens_at_150(facts: Facts, _: Rule) -> Answer:
    """Tokens per second that 150 TFLOP/s per device would be for this model."""
    estimate = facts.estimate
    work = estimate.model_flops_per_s_per_device / estimate.tokens_per_s_per_device
    each = 150e12 / work
    return Answer(
        verdict="wrong", figure=_rate("tokens_per_s", each * facts.layout.world),
        sentence=f"150 TFLOP/s a device are {each:,.0f} tokens/s a device with this model ({work / 1e9:,.0f} GFLOP a token), {count(each * facts.layout.world)} on "
        f"{facts.layout.world} devices; predicted here: {count(estimate.tokens_per_s)}",
    )  # fmt: skip


@judges("template-batch")
def template_batch(facts: Facts, _: Rule) -> Answer:
    """The template's product beside this case's."""
    layout, batch = facts.layout, facts.case.batch.global_batch_sequences
    return Answer(
        verdict="wrong", figure=number("num_microbatches", layout.num_microbatches),
        sentence=f"1 x 16 x 8 = {1 * 16 * 8}, not 2048: 2048 / (1 x 8) = {2048 // 8} micro-batches are needed; here {batch} / ({layout.microbatch_sequences} x "
        f"{layout.data_parallel}) = {layout.num_microbatches}",
    )  # fmt: skip
