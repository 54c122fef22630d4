"""Plain corrections (flags that do not exist, words that are mixed up), each with the figure of the case that they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.judging.finding import Figure, Ruling, number, ratio, size, time_of
from meshwright.judging.predicates import judges
from meshwright.units import count, gib
from meshwright.words import percent, seconds, speed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts

    Cited = tuple[Figure, str]


def _num_microbatches(facts: Facts) -> Cited:
    layout, batch = facts.layout, facts.case.batch.global_batch_sequences
    words = f"{batch} / ({layout.microbatch_sequences} x {layout.data_parallel}) = {layout.num_microbatches} micro-batches"
    return number("num_microbatches", layout.num_microbatches), words


def _data_parallel(facts: Facts) -> Cited:
    layout = facts.layout
    parts = f"({layout.tensor_parallel} x {layout.pipeline_parallel} x {layout.context_parallel})"
    return number("data_parallel", layout.data_parallel), f"{layout.world} / {parts} = {layout.data_parallel} replicas"


def _stage_bytes(facts: Facts, name: str, words: str) -> Cited:
    estimate = facts.estimate
    value = getattr(estimate.stages[estimate.peak_stage].memory, name)
    return size(value, f"{name}_bytes"), f"{gib(value)} of {words} on the fullest device"


def _model_flops(facts: Facts) -> Cited:
    value = facts.estimate.model_flops_per_s_per_device
    return Figure(
        name="model_flops_per_s_per_device", value=value, unit="FLOP/s"
    ), f"{speed(value / 1e12)} TFLOP/s per device are predicted"


def _launches(facts: Facts) -> Cited:
    share = facts.share("kernel launches")
    return ratio("launch_ratio", share), f"launches that the device waits for take {percent(share)} of the step"


def _global_batch(facts: Facts) -> Cited:
    layout, batch = facts.layout, facts.case.batch.global_batch_sequences
    words = f'"train_batch_size": {batch}, "train_micro_batch_size_per_gpu": {layout.microbatch_sequences}'
    return number("global_batch_sequences", batch), words


CITED: Mapping[str, Callable[[Facts], Cited]] = {
    "num-microbatches": _num_microbatches,
    "data-parallel": _data_parallel,
    "gradient-bytes": lambda f: _stage_bytes(f, "gradients", "gradients"),
    "optimizer-bytes": lambda f: _stage_bytes(f, "optimizer", "optimizer states"),
    "activations": lambda f: _stage_bytes(f, "activations", "activations"),
    "model-flops": _model_flops,
    "launches": _launches,
    "global-batch": _global_batch,
    "tokens-per-step": lambda f: (
        number("tokens_per_step", f.case.batch.tokens), f"a step has {f.case.batch.tokens:,} tokens, padding included"
    ),
    "step": lambda f: (time_of(f.step_s), f"a step of {seconds(f.step_s)} is what the profile should show"),
    "communication": lambda f: (
        ratio("communication_ratio", f.communication_ratio), f"exposed communication is predicted at "
        f"{percent(f.communication_ratio)} of the step"
    ),
    "tensor-parallel": lambda f: (
        ratio("tensor_parallel_ratio", f.estimate.time.tensor_parallel_s / f.step_s),
        f"tp{f.layout.tensor_parallel} exposes {percent(f.estimate.time.tensor_parallel_s / f.step_s)} of the step",
    ),
    "context-parallel": lambda f: (
        number("context_parallel", f.layout.context_parallel),
        f"cp{f.layout.context_parallel} exposes {percent(f.estimate.time.context_parallel_s / f.step_s)} of the step",
    ),
    "mfu": lambda f: (
        ratio("mfu_ratio", f.estimate.mfu_ratio), f"{count(f.estimate.tokens_per_s)} tokens/s at "
        f"{percent(f.estimate.mfu_ratio)} MFU are predicted"
    ),
}
"""Figure of the case by its name in ``guides.yaml``."""


@judges("stated")
def stated(facts: Facts, rule: Rule) -> Ruling:
    """The correction, with the figure that it is about."""
    figure, words = CITED[rule.cites](facts)
    return Ruling(verdict="wrong", figure=figure, sentence=f"{rule.correction}; here: {words}")
