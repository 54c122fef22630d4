"""What somebody claims of a run, against itself and against the prediction.

Every claim of speed becomes tokens per second and device, by the model FLOPs of a token under the case's convention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.check.context import finding
from meshwright.estimate.single import model_flops
from meshwright.perf.flops import sequence_flops, training_flops
from meshwright.perf.parameters import active_parameters
from meshwright.units import GIB, TERA, count, gib
from meshwright.words import percent, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.claim import Claim
    from meshwright.check.context import Context
    from meshwright.domain.estimate import Estimate
    from meshwright.frameworks.settings import Finding

ALIKE, APART = 1.15, 1.5
"""Claims nearer than the first ratio agree (conventions of FLOPs differ by so much); beyond the second they cannot both be true."""
GB = 1e9
NO_INTERVAL = 1.3
"""How far a claim may lie from a prediction that has no interval."""


class Scale(Struct, frozen=True, kw_only=True):
    """What turns one claim into another; None where it is not known."""

    devices: int | None
    flops_per_token: float | None
    six_n: float | None
    """6 N of the parameters that a token passes: what a reader computes in the head."""
    sequence_tokens: int | None
    step_tokens: int | None
    peak_flops_per_s: float | None

    def tokens_per_s_per_device(self, each: Claim) -> float | None:
        """The speed that a claim comes to; None where a figure for it is missing, or it is no speed."""
        value = each.value
        match each.name, self:
            case "tokens_per_s", Scale(devices=int(devices)):
                return value / devices
            case "tokens_per_s_per_device", _:
                return value
            case "tflops_per_device", Scale(flops_per_token=float() | int() as flops):
                return value * TERA / flops
            case "mfu", Scale(flops_per_token=float() | int() as flops, peak_flops_per_s=float() | int() as peak):
                return value * peak / flops
            case "step_s", Scale(step_tokens=int(tokens), devices=int(devices)):
                return tokens / value / devices
            case "samples_per_s", Scale(sequence_tokens=int(tokens), devices=int(devices)):
                return value * tokens / devices
            case _:
                return None


def scale_of(context: Context) -> Scale:
    """The figures of the case, or as many as are known without one."""
    question, case, said = context.question, context.case, context.reading.said
    if case is not None:
        batch, estimate = case.batch, context.estimate
        dtype = case.training.precision.gemm_dtype
        peak = estimate.peak_flops_per_s if estimate else case.cluster.device.peak_flops_per_s.get(dtype)
        return Scale(
            devices=context.layout.world if context.layout else case.cluster.num_devices, step_tokens=batch.tokens,
            flops_per_token=model_flops(case) / batch.tokens, six_n=6.0 * active_parameters(case.model),
            sequence_tokens=batch.sequence_tokens, peak_flops_per_s=peak,
        )
    model, batch_size = question.model, said.global_batch_sequences
    sequence = said.sequence_tokens
    six_n = 6.0 * active_parameters(model) if model is not None else None
    work = six_n
    if model is not None and sequence:
        work = training_flops(sequence_flops(model, sequence, convention="causal")) / sequence
    peak = question.device.peak_flops_per_s.get("bf16") if question.device is not None else None
    return Scale(
        devices=question.num_devices or said.devices, flops_per_token=work, six_n=six_n, sequence_tokens=sequence,
        step_tokens=batch_size * sequence if batch_size and sequence else None, peak_flops_per_s=peak,
    )


def claims(context: Context) -> Iterator[Finding]:
    """The claims against each other, against the machine, and against the prediction."""
    if not context.question.claims:
        return
    scale = scale_of(context)
    speeds: dict[str, tuple[Claim, float]] = {}
    for each in context.question.claims:
        speed = scale.tokens_per_s_per_device(each)
        if speed is not None:
            speeds[each.name] = (each, speed)
        elif each.name != "memory_gb":
            context.skipped.append(f"the claim {each} cannot be converted: model, devices, batch or sequence is missing")
    yield from _between(scale, list(speeds.values()))
    for each, speed in speeds.values():
        yield from _possible(scale, each, speed)
        if context.estimate is not None:
            yield from _against(context.estimate, each, speed)
    for each in context.question.claims:
        if each.name == "memory_gb":
            yield from _memory(context, each)


def _between(scale: Scale, speeds: list[tuple[Claim, float]]) -> Iterator[Finding]:
    """The slowest against the fastest claim, in one unit."""
    if len(speeds) < 2:
        return
    (low, least), (high, most) = min(speeds, key=lambda pair: pair[1]), max(speeds, key=lambda pair: pair[1])
    ratio = most / least
    if ratio < ALIKE:
        return
    devices = scale.devices or 1
    work = ""
    if scale.flops_per_token and scale.six_n and {"tflops_per_device", "mfu"} & {low.name, high.name}:
        work = f" (model FLOPs of a token {count(scale.flops_per_token)}, 6N alone {count(scale.six_n)})"
    yield finding(
        "error" if ratio >= APART else "warning", "check.claims-disagree",
        "{low} is {least:,.4g} tokens/s/device ({least_all} tokens/s), {high} is {most:,.4g} tokens/s/device ({most_all} tokens/s):"
        " {ratio:.1f} times apart{work}{hint}",
        path="--claim", value={"ratio": ratio, low.name: least, high.name: most}, expected=1.0, low=low, high=high, least=least,
        most=most, least_all=count(least * devices), most_all=count(most * devices), ratio=ratio, work=work,
        hint=_hint(ratio, devices), source="model FLOPs by parameters, sequence and devices",
    )


def _hint(ratio: float, devices: int) -> str:
    """What a factor often means."""
    for size, words in ((devices, "one is of a device, the other of all"), (8, "one is of a device, the other of a node")):
        if size > 1 and abs(ratio / size - 1.0) < 0.1:
            return f"; about {size}: perhaps {words}"
    return ""


def _possible(scale: Scale, each: Claim, speed: float) -> Iterator[Finding]:
    """A claim above the peak of the device."""
    if scale.peak_flops_per_s is None or scale.flops_per_token is None:
        return
    mfu = speed * scale.flops_per_token / scale.peak_flops_per_s
    if mfu > 1.0:
        yield finding(
            "error", "check.claim-impossible", "{claim} would be an MFU of {mfu:.0%}, above the dense peak of {peak} TFLOP/s",
            path="--claim", value=each.value, claim=each, mfu=mfu, peak=rate(scale.peak_flops_per_s / TERA),
            expected=_like(each, scale.peak_flops_per_s / scale.flops_per_token / speed), source="dense peak of the device",
        )


def _like(each: Claim, factor: float) -> float:
    """The claim's own figure at a speed that is ``factor`` times its."""
    return each.value / factor if each.name == "step_s" else each.value * factor


def _against(estimate: Estimate, each: Claim, speed: float) -> Iterator[Finding]:
    """A claim of speed outside what is predicted for this layout."""
    predicted = estimate.tokens_per_s_per_device
    if estimate.interval is not None:
        fast_s, slow_s = estimate.interval.step_s
        low, high = predicted * estimate.step_s / slow_s, predicted * estimate.step_s / fast_s
        words = f"{percent(estimate.interval.level, 0)} interval"
    else:
        low, high, words = predicted / NO_INTERVAL, predicted * NO_INTERVAL, "no interval: uncalibrated"
    if low <= speed <= high:
        return
    off = speed / high if speed > high else low / speed
    ends = (high, low) if each.name == "step_s" else (low, high)  # of the claim's own figure the lower one first
    expected = _like(each, predicted / speed)
    yield finding(
        "error" if off > APART else "warning", "check.claim-unlikely",
        "{claim} is {ratio:.2f} times the prediction of {predicted} for this layout ({low} to {high}, {words})",
        path="--claim", value=each.value, expected=expected, claim=each, ratio=each.value / expected,
        predicted=_words(each, predicted / speed), low=_words(each, ends[0] / speed), high=_words(each, ends[1] / speed),
        words=words, source=f"prediction, calibration {estimate.calibration}",
    )


def _words(each: Claim, factor: float) -> str:
    """The claim's figure at another speed, as people read it."""
    value = _like(each, factor)
    return f"{value:.3f}" if each.name == "mfu" else f"{value:,.4g}" if value < 1e5 else count(value)


def _memory(context: Context, each: Claim) -> Iterator[Finding]:
    """Claimed memory of a device against its capacity and the prediction; a GB may be 10^9 bytes or 2^30."""
    least, most, case = each.value * GB, each.value * GIB, context.case
    device = case.cluster.device if case is not None else context.question.device
    if device is not None and least > device.memory_bytes:
        yield finding(
            "error", "check.claim-impossible", "{claim} is more than the {have} of a {device}", path="--claim", value=each.value,
            expected=device.memory_bytes / GIB, claim=each, have=gib(device.memory_bytes), device=device.name,
            source="the catalogue",
        )
    if context.estimate is None:
        context.skipped.append(f"the claim {each} is compared with no prediction: there is none")
        return
    peak, reserved, known = context.estimate.memory_peak_bytes, context.estimate.memory_reserved_bytes, context.estimate.interval
    low = known.memory_peak_bytes[0] if known else peak / NO_INTERVAL
    high = known.memory_reserved_bytes[1] if known else reserved * NO_INTERVAL
    if most < low or least > high:
        yield finding(
            "warning", "check.claim-unlikely", "{claim}: {predicted} are predicted for the fullest device ({low} to {high})",
            path="--claim", value=each.value, expected=peak / GIB, claim=each, predicted=gib(peak), low=gib(low), high=gib(high),
            source=f"prediction, calibration {context.estimate.calibration}",
        )
