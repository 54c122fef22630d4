"""Published and large cases of the stage balance, with the best that others reached on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshwright.domain.balance import BalanceProblem, Body, End

LS1 = BalanceProblem(
    stages=16,
    microbatches=16,
    treatments=("none", "full"),
    bodies=(
        Body(
            layers=96,
            forward_time=180.0,
            backward_times=(360.0, 540.0),
            static_memory=1583.0,
            activation_memory=(826.0, 32.0),
        ),
    ),
    first=End(forward_time=30.0, backward_time=60.0, static_memory=11000.0),
    last=End(forward_time=90.0, backward_time=180.0, static_memory=2473.0),
    memory_bounds=(53000.0,) * 16,
)
"""SAPP's layer set of its first test: 96 layers, times without unit, memory in MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A case with the best that was published or measured for it."""

    name: str
    problem: BalanceProblem
    slot: float | None
    """Proved by others; None where it is not known."""
    simulated: float
    """The best of others."""
    solver: str
    """Whose."""


PUBLISHED = (
    Published(name="T1: V1 m16, 53 GB", problem=LS1, slot=3780.0, simulated=110_070.0, solver="SAPP + CBC (golden list: 111,510)"),
    Published(
        name="T1: V1 m16, 25 GB",
        problem=replace(LS1, memory_bounds=(25000.0,) * 16),
        slot=4140.0,
        simulated=124_470.0,
        solver="SAPP + CBC",
    ),
    Published(name="T9: V1 m64", problem=replace(LS1, microbatches=64), slot=3780.0, simulated=291_510.0, solver="SAPP + CBC"),
    Published(
        name="T9: V3 m16, less memory",
        problem=replace(LS1, chunks=3, schedule="interleaved-less-memory"),
        slot=None,
        simulated=85_770.0,
        solver="SAPP + HiGHS, 50 s, unproved",
    ),
    Published(
        name="T9: V3 m64",
        problem=replace(LS1, chunks=3, schedule="interleaved", microbatches=64),
        slot=1470.0,
        simulated=289_530.0,
        solver="SAPP + HiGHS",
    ),
    Published(
        name="T9: P8 m32, 60 GB",
        problem=replace(LS1, stages=8, microbatches=32, memory_bounds=(60000.0,) * 8),
        slot=7290.0,
        simulated=279_270.0,
        solver="SAPP + CBC",
    ),
)
"""SAPP's test T1 and the cases T9 solved with its programme; simulated times are those of its simulator."""


def llama_like(chunks: int) -> BalanceProblem:
    """126 alike layers of llama3.1-405b's shape (TP 8, sequence 8192, micro-batch 1) on 16 stages; seconds and GB, rounded."""
    return BalanceProblem(
        stages=16,
        chunks=chunks,
        microbatches=64,
        schedule="1f1b" if chunks == 1 else "interleaved",
        treatments=("none", "full"),
        bodies=(
            Body(
                layers=126,
                forward_time=0.0181,
                backward_times=(0.0362, 0.0543),
                static_memory=4.02,
                activation_memory=(0.871, 0.034),
                transient_memory=(0.6, 1.1),
            ),
        ),
        first=End(forward_time=0.0004, backward_time=0.0009, static_memory=5.3, activation_memory=0.034),
        last=End(forward_time=0.0118, backward_time=0.0241, static_memory=5.3, activation_memory=0.9, transient_memory=1.6),
        memory_bounds=(60.0,) * 16,
        hop_time=0.0003,
    )


def five_ways(chunks: int) -> BalanceProblem:
    """126 layers on 16 stages with SAPP's five treatments, its coefficients and the activations of its test T6."""
    coefficients = (0.0, 0.04, 0.125, 0.165, 0.5)
    return BalanceProblem(
        stages=16,
        chunks=chunks,
        microbatches=32,
        schedule="1f1b" if chunks == 1 else "interleaved",
        treatments=("none", "select", "communication", "both", "full"),
        bodies=(
            Body(
                layers=126,
                forward_time=180.0,
                backward_times=tuple(360.0 * (1 + each) for each in coefficients),
                static_memory=1583.0,
                activation_memory=(826.0, 614.0, 426.0, 310.0, 32.0),
            ),
        ),
        first=End(forward_time=30.0, backward_time=60.0, static_memory=11000.0),
        last=End(forward_time=90.0, backward_time=180.0, static_memory=2473.0),
        memory_bounds=(58000.0,) * 16,
    )


LARGE = tuple(
    (f"{name}, V{chunks}", make(chunks))
    for name, make in (("126 layers, 2 kinds", llama_like), ("126 layers, 5 kinds", five_ways))
    for chunks in (1, 2, 3, 4)
)
"""Names and problems of 126 layers on 16 stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A step of a documented tuning: what was measured in tokens/s/card, and the layout."""

    name: str
    tokens_per_s: float
    devices: int
    batch: int
    layout: str


LADDER = (
    Rung(name="DP8, full", tokens_per_s=1860.0, devices=8, batch=8, layout="dp8 mb1 zero2 recompute=full"),
    Rung(
        name="DP8 PP2, 128 micro-batches, full",
        tokens_per_s=2136.0,
        devices=16,
        batch=1024,
        layout="dp8 pp2 mb1 zero1 recompute=full",
    ),
    Rung(
        name="operators selected",
        tokens_per_s=2189.0,
        devices=16,
        batch=1024,
        layout="dp8 pp2 mb1 zero1 recompute=selective:core_attn,layernorm,mlp",
    ),
    Rung(
        name="lists [20,8] and [20,0]",
        tokens_per_s=2210.0,
        devices=16,
        batch=1024,
        layout="dp8 pp2 mb1 zero1 recompute=selective:core_attn,layernorm,mlp:[20,0]+selective:mlp_act:[0,8]",
    ),
    Rung(
        name="full [13,5], activation elsewhere",
        tokens_per_s=2353.0,
        devices=16,
        batch=1024,
        layout="dp8 pp2 mb1 zero1 recompute=full:[13,5]+selective:mlp_act:[7,15]",
    ),
    Rung(
        name="full [4,0], activation elsewhere",
        tokens_per_s=2562.0,
        devices=16,
        batch=1024,
        layout="dp8 pp2 mb1 zero1 recompute=full:[4,0]+selective:mlp_act:[16,20]",
    ),
)
"""MindSpore's documented tuning of Llama2-13B on Atlas 800T A2.

Source: MindSpore Transformers, "Large Model Performance Optimization Guide", section "Llama2-13B Extreme Performance Optimization"
(mindspore-ai/docs@08ec0174). Beside that text from the published configuration (mindformers
configs/llama2/finetune_llama2_13b_bf16.yaml): sequence 4096, 16-bit parameters and so gradients, optimizer parallel, 59 GB. The
micro-batch of the pipelined rungs is one sequence (larger ones do not fit). The text leaves that of the first rung open: the
configuration's file says 4 sequences and no accumulation; one is taken here, as on the other rungs. Without accumulation the
optimizer parallel keeps no whole gradients (zero2); with it, it does (``gradient_accumulation_shard: False``, zero1).
"""
LADDER_BYTES = 57.2e9
"""What a card held on the last rung."""
