"""What was asked, and the figures that answer it; an estimate without calibration says so beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.report.blocks import Block, Run, Tone, Words, cell, figure, line, pieces, table, words
from meshwright.words import chance, count, gib, gib_of, integer, percent, plural, rate, seconds, tflops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate

UNCALIBRATED = "UNCALIBRATED"
MASKED = "sparse attention is a mask over the scores of all pairs here, as in transformers: no pair is skipped"
LIKELY = 0.5
"""Below it, a layout more likely than not does not run."""
CONVENTIONS = {
    "causal": "causal half of attention, no recompute",
    "full": "full attention, no recompute",
    "megatron": "full attention and padded vocabulary (Megatron), no recompute",
}


def case_header(case: Case) -> Iterator[Block]:
    """Model, cluster, batch and numbers of a case."""
    model, cluster, batch, training = case.model, case.cluster, case.batch, case.training
    experts = model.experts
    active = f" ({count(active_parameters(model))} active)" if experts else ""
    routed = f", {experts.num_experts} experts, {experts.experts_per_token} per token" if experts else ""
    parameters = f"  {count(total_parameters(model))} parameters{active}, {plural(model.num_layers, 'layer')}{routed}"
    rows = [("model", words(Run(model.name, "strong"), parameters))]
    if said := _tower(case):
        rows.append(("", words(Run(said, "warn"))))
    if case.implementation.masks_selection and any(each.selected_tokens is not None for each in model.attentions):
        rows.append(("", words(Run(MASKED, "warn"))))
    if model.assumed:
        rows.append(("", words(Run(f"assumed, not published: {', '.join(model.assumed)}", "warn"))))
    nodes = f"  {plural(cluster.num_nodes, 'node')} of {cluster.devices_per_node}, {gib(case.capacity_bytes)} usable per device"
    rows.append(("cluster", words(Run(f"{integer(cluster.num_devices)} x {cluster.device.name}", "strong"), nodes)))
    sequences = plural(batch.global_batch_sequences, "sequence" if batch.packing is None else "pack")
    if batch.packing is not None:
        whole = round(batch.samples) == batch.samples
        samples = plural(round(batch.samples), "sample") if whole else f"{batch.samples:,.6g} samples"
        sequences = f"{samples} in {sequences}"
    padding = f", {percent(batch.padding_ratio)} of them padding" if batch.packing else ""
    step = Run(f"{sequences} x {integer(batch.sequence_tokens)} tokens", "strong")
    rows.append(("step", words(step, f" = {count(batch.tokens)} tokens{padding}")))
    runs = f"{training.task}, {training.precision.name}, {training.optimizer.name}, as {case.implementation.name} runs it"
    rows.append(("training", words(runs)))
    told = [(Run(name, "dim") if name else "", cell(*said)) for name, said in rows]
    yield table(["", ""], told, whole=[0], look="grid", indent=0, above=True)


def _tower(case: Case) -> str:
    """What of a tower in front of the model is counted, and what is assumed of it; empty where nobody asked for one."""
    model, tokens = case.model, case.batch.sequence_tokens
    if (tower := model.tower) is not None:
        images = tower.image_ratio * tokens
        patches = max(1.0, min(float(tower.image_patches), images * tower.merged))
        assumed = " (assumed: half; --launch image_tokens=N)"
        if "image_tokens" in case.launch.given or model.vision is None:
            assumed = ""
        learns = "trained" if tower.trained else "frozen: weights and a forward"
        return (
            f"with its {tower.name} ({count(tower.parameters)} parameters, {tower.layers} layers, {learns}) on stage 0; "
            f"{integer(round(images))} of {integer(tokens)} tokens of a sequence are images{assumed}, "
            f"{integer(round(patches))} patches each, {tower.merged} a token"
        )
    if not model.beside:
        return ""
    how = (
        "--launch vision=frozen or vision=trained counts it" if model.vision is not None
        else "a tower that is trained is described in YAML (docs/adding-a-model.md)"
    )
    return f"the language model alone: {', '.join(model.beside)} is in no figure here; {how}"


def headline(estimate: Estimate, title: str = "") -> Iterator[Block]:
    """A layout and its figures: time, MFU, throughput, memory; then what MFU means here."""
    yield line(Run(f"{title}  " if title else "", "strong"), Run(estimate.label, "accent", bold=True), above=True)
    tone: Tone = "good" if estimate.fits else "bad"
    faster = [estimate.step_s / each for each in reversed(_steps(estimate))]
    share = [min(1.0, estimate.mfu_ratio * each) for each in faster]
    speeds = ((estimate.tokens_per_s_per_device, "tokens/s/device"), (estimate.tokens_per_s, "tokens/s"))
    yield pieces(
        words(
            figure(estimate.step_s, seconds, tone=tone, bold=True), Run(" per step", tone, bold=True),
            _between(_steps(estimate), seconds),
            *(() if estimate.calibrated else words("  ", Run(UNCALIBRATED, "warn", badge=True, bold=True))),
        ),
        words(figure(estimate.mfu_ratio, percent, tone="strong"), Run(" MFU", "strong"), _between(share, percent)),
        *(words(figure(speed, rate), f" {unit}{_between([speed * each for each in faster], rate)}") for speed, unit in speeds),
    )
    yield from _stalled(estimate)
    yield pieces(*_memory(estimate))
    if estimate.interval is not None:
        yield pieces(*_chances(estimate, estimate.interval.level))
    parts = [
        words("effective ", figure(estimate.effective_tokens_per_s_per_device, rate),
              " tokens/s/device without bubble, communication and host"),
        words(_bubble(estimate)), words("HFU ", figure(estimate.hfu_ratio, percent)),
    ]
    if estimate.linearity_ratio is not None:
        baseline = estimate.linearity_baseline_devices
        against = f" against {baseline} devices" if baseline else ""
        linearity = Run(f"{estimate.linearity_ratio:.2f}", value=estimate.linearity_ratio, unit="ratio")
        parts.append(words("linearity ", linearity, against))
    parts.append(words(figure(estimate.samples_per_s, rate), " samples/s"))
    if estimate.host_memory_per_node_bytes > 0:
        parts.append(words("host memory ", figure(estimate.host_memory_per_node_bytes, gib), " per node"))
    yield pieces(*parts)
    if estimate.linearity_baseline_label not in (None, estimate.label):
        yield line(f"linearity compares with {estimate.linearity_baseline_label}", kind="small", indent=2)
    yield pieces(*convention(estimate), f"calibration {estimate.calibration}", kind="small")


def _stalled(estimate: Estimate) -> Iterator[Block]:
    """The second time that the layout may take, where it may take one of two."""
    if (second := estimate.stall) is not None:
        both = f"; 90 % of all runs{_between(second.either_s, seconds)}" if second.either_s else ""
        share, step = figure(second.probability, percent, 0, tone="warn"), figure(second.step_s, seconds, tone="warn")
        told = (Run("in ", "warn"), share, Run(" of runs pipeline messages stall: ", "warn"), step, Run(f" per step{both}", "warn"))
        yield line(*told, indent=2)


def _bubble(estimate: Estimate) -> str:
    """The wait of the busiest stage; where there are several, what equal stages would idle, and the wait of all on average."""
    share = f"bubble {percent(estimate.bubble_ratio)}"
    if len(estimate.stages) == 1:
        return share
    formula, mean = percent(estimate.bubble_formula_ratio), percent(estimate.mean_idle_ratio)
    return f"{share} on the busiest stage, {mean} on the mean one, {formula} by formula"


def _memory(estimate: Estimate) -> Iterator[str | Run]:
    """Reserved against capacity, where it is fullest, and how far it may reach."""
    reserved, capacity = estimate.memory_reserved_bytes, estimate.memory_capacity_bytes
    yield f"memory {gib_of(reserved, capacity)} ({percent(reserved / capacity, 0)})"
    if not estimate.fits:
        short = f": short of {gib(reserved - capacity)}" if reserved > capacity else ""
        yield Run(f"DOES NOT FIT{short}", "bad", bold=True)
    peaks = estimate.interval.memory_peak_bytes if estimate.interval else ()
    yield f"stage {estimate.peak_stage} is fullest, {gib(estimate.memory_peak_bytes)} allocated{_between(peaks, gib)}"
    yield f"upper bound {gib(estimate.memory_upper_bytes)}"


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


def _chances(estimate: Estimate, level: float) -> Iterator[str | Words]:
    """What the brackets hold, and how likely the layout runs; 0 is said by a framework that refuses, never by a calibration."""
    fits, finishes = estimate.memory_fit_probability, estimate.fit_probability
    yield f"brackets hold {percent(level, 0)} of runs"
    yield _probability("fits in memory with ", fits)
    yield _probability("a run finishes with ", finishes) if finishes else words(
        Run("no run finishes: refused, see the notes", "bad", bold=True))


def _probability(what: str, ratio: float) -> Words:
    """A probability in red where it is more likely not so."""
    tone: Tone = "bad" if ratio < LIKELY else ""
    return tuple(
        replace(each, tone=tone, bold=bool(tone)) for each in words(what, figure(ratio, chance), " probability")
    )


def standing(case: Case, estimate: Estimate) -> Iterator[Block]:
    """What stands behind the figures: a profile of the cluster; runs of this very kind, of kin, or none; nothing for the priors."""
    known = case.calibration.uncertainty
    measured = case.cluster.measured
    if measured is not None:
        yield line(f"figures of {measured.name} measured by a profile of {measured.version}", kind="small", indent=2)
    grade = (estimate.grades or {}).get("step_s")
    if known is None or grade is None:
        return
    device, framework = case.cluster.device, case.implementation.family
    own = f"{device.name} under {framework} in {case.training.precision.name}"
    runs = {level: known.seen.get(level, 0) for level in ("cell", "device", "framework", "family")}
    if grade == "calibrated":
        yield line(f"calibrated on {plural(runs['cell'], 'run')} of {own}", kind="small", indent=2)
        return
    names = {"device": device.name, "family": f"{device.family} devices", "framework": framework}
    kin = ", ".join(f"{plural(runs[level], 'run')} of {name}" for level, name in names.items() if runs[level])
    said = f"KIN  no run of {own} stands behind this; borrowed from its kin: {kin}"
    if grade != "kin":
        said = f"ANALYTIC  no run of {own} or of its kin stands behind this: formulas and priors, moved by what all runs share"
    yield line(Run(said, bold=True), kind="note", indent=2)


def convention(estimate: Estimate) -> tuple[str, str]:
    """What MFU counts, and the peak that it is relative to."""
    counted = CONVENTIONS.get(estimate.flops_convention, estimate.flops_convention)
    return f"MFU counts {counted}", f"over the dense {estimate.peak_dtype} peak of {tflops(estimate.peak_flops_per_s)}"
