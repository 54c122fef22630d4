"""Fixed values for report tests, and the way to write the golden files again.

After a wanted change: ``PYTHONPATH=src python tests/report/report_samples.py --update-golden``, and read the diff.
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from meshwright.api.packed import Packed
from meshwright.api.packed_curve import Point
from meshwright.api.packed_dynamic import Dynamic
from meshwright.api.packed_gain import Speedup
from meshwright.api.packed_steps import Outcome, Rules
from meshwright.api.packs import Samples
from meshwright.domain.attention import Attention
from meshwright.domain.case import Case
from meshwright.domain.cluster import Cluster, Device, Link
from meshwright.domain.estimate import Estimate, Fits, HostMemory, Infeasible, Stage, StageMemory, Term, TimeSplit, Unmet
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.domain.training import Batch, Optimizer, Precision, Training
from meshwright.errors import Message
from meshwright.packing import Figures
from meshwright.packing.dynamic import Group, Step
from meshwright.search.result import Comparison, PlanResult, RankedPlan
from meshwright.units import GIB

GOLDEN = Path(__file__).parent / "golden"
LAYOUT = Layout(
    tensor_parallel=8, sequence_parallel=True, pipeline_parallel=4, data_parallel=16, optimizer_shards=16,
    num_microbatches=64,
)


def model() -> Model:
    attention = Attention(num_heads=64, num_key_value_heads=8, head_dim=128)
    kind = LayerKind(attention=attention, feed_forward=Mlp(width=28672))
    return Model(name="llama3-70b", hidden=8192, vocabulary=128256, kinds=(kind,), pattern=(0,) * 80)


def cluster() -> Cluster:
    device = Device(
        name="h100-sxm", family="hopper", memory_bytes=int(79.1 * GIB), memory_bytes_per_s=3.35e12,
        peak_flops_per_s={"bf16": 989e12}, num_units=132, scale_up_bytes_per_s=450e9, power_w=700.0,
    )
    return Cluster(
        name="dgx-h100", device=device, num_devices=512, devices_per_node=8, scale_up_devices=8,
        scale_up=Link(bytes_per_s=450e9, latency_s=1e-6), network=Link(bytes_per_s=50e9, latency_s=5e-6),
    )


def case() -> Case:
    precision = Precision(name="bf16", gemm_dtype="bf16", base_dtype="bf16", parameter_bytes=2, saved_input_bytes=2,
                          gather_bytes=2)
    implementation: Any = SimpleNamespace(name="megatron-te", cuda_graphs=False, expert_deduplication=False, masks_selection=False)
    calibration: Any = SimpleNamespace(label="none@0", uncertainty=None)
    return Case(
        model=model(), cluster=cluster(), batch=Batch(global_batch_sequences=1024, sequence_tokens=8192),
        training=Training(task="pretrain", precision=precision, optimizer=Optimizer(name="adamw", state_bytes=8.0)),
        implementation=implementation, calibration=calibration, memory_ratio=1.0,
    )


def estimate(layout: Layout = LAYOUT, *, factor: float = 1.0, fits: bool = True) -> Estimate:
    """Round figures; ``factor`` scales the time of compute."""
    time = TimeSplit(
        compute_s=12.0 * factor, tensor_parallel_s=1.5, context_parallel_s=0.0, expert_parallel_s=0.0,
        pipeline_exposed_s=0.25, bubble_s=0.75, data_parallel_exposed_s=0.4, optimizer_s=0.08, host_s=0.02,
    )
    step = time.total_s()
    memory = [
        StageMemory(
            parameters=4.0 * GIB, gradients=8.0 * GIB, optimizer=1.5 * GIB, activations=(30.0 - 7 * stage) * GIB,
            temporary=(3.0 + 4 * (stage == layout.pipeline_parallel - 1)) * GIB, overhead=4.5 * GIB,
        )
        for stage in range(layout.pipeline_parallel)
    ]
    capacity = (79.1 if fits else 40.0) * GIB
    stages = tuple(
        Stage(stage=place, layers=80 // layout.pipeline_parallel, parameters=2_200_000_000, memory=each,
              forward_s=0.045 * factor, backward_s=0.09 * factor)
        for place, each in enumerate(memory)
    )
    rate = 1024 * 8192 / step
    return Estimate(
        label=label(layout), layout=layout, fits=fits, calibrated=False, memory_fit_probability=float(fits),
        fit_probability=float(fits), step_s=step, tokens_per_s=rate, tokens_per_s_per_device=rate / 512,
        samples_per_s=1024 / step, model_flops_per_s_per_device=450e12 / factor,
        hardware_flops_per_s_per_device=450e12 / factor, mfu_ratio=0.455 / factor, hfu_ratio=0.455 / factor,
        bubble_ratio=0.75 / step, bubble_formula_ratio=3 / 35, linearity_ratio=0.93, linearity_baseline_devices=32,
        memory_peak_bytes=memory[0].allocated_bytes, memory_reserved_bytes=memory[0].reserved_bytes,
        memory_upper_bytes=memory[0].reserved_bytes + 3.0 * GIB, memory_capacity_bytes=capacity,
        host_memory_per_node_bytes=64.0 * GIB,
        host_memory_bytes=HostMemory(offload=0.0, pinned=0.0, checkpoint=40.0 * GIB, loader=0.0, other=24.0 * GIB),
        peak_stage=0, stages=stages, time=time, calibration="none@0",
        flops_convention="causal", peak_flops_per_s=989e12, peak_dtype="bf16",
        terms=(Term(name="forward of a micro-batch", value=0.045, unit="s", formula="perf.layer.forward"),
               Term(name="activations of a layer", value=1.5e9, unit="B", formula="perf.activations.layer")),
        grades={"step_s": "analytic"},
    )


def ranked(rank: int, layout: Layout, factor: float, group: int) -> RankedPlan:
    reasons = ("TP stays inside the NVLink domain.", "64 micro-batches hide the pipeline: bubble 5 %.")
    return RankedPlan(
        rank=rank, label=label(layout), layout=layout, estimate=estimate(layout, factor=factor),
        reasons=reasons if rank == 1 else (), group=group,
    )


def result() -> PlanResult:
    half = replace(LAYOUT, tensor_parallel=4, data_parallel=32, optimizer_shards=32, num_microbatches=32)
    plans = (
        ranked(1, LAYOUT, 1.0, 0),
        ranked(2, half, 1.01, 0),
        ranked(3, replace(half, recompute=Full(layers=2), optimizer_shards=8), 1.02, 0),
        ranked(4, replace(LAYOUT, virtual_stages=2, schedule="interleaved"), 1.2, 1),
    )
    return PlanResult(
        legal=123_456, evaluated=100_000, bounded=23_456, fitting=45_678,
        rejected={"heads: tp does not divide 8 key-value heads": 9000, "batch: dp x mb does not divide 1024": 1000},
        search_s=0.25, plans=plans, pareto=(plans[0], plans[2]), verdict=Fits(headroom_bytes=28.1 * GIB),
        used_devices=504, idle_devices=8,
        notes=(Message("plan.pinned", "{count} knobs are pinned", {"count": 2}),),
    )


def nothing() -> PlanResult:
    unmet = Unmet(
        constraint="memory of the fullest device, smallest layout: tp8 pp1 dp1 mb1 zero3", demand=91.4 * GIB,
        bound=79.0 * GIB, unit="B", terms={"parameters": 40.0 * GIB, "optimizer": 51.4 * GIB},
        levers=("devices 8 -> 16: the first number that fits", "--precision fp8-mx saves 6.0 GiB"),
    )
    return replace(result(), plans=(), pareto=(), fitting=0, verdict=Infeasible(unmet=(unmet,)))


def comparison() -> Comparison:
    other = replace(LAYOUT, microbatch_sequences=2, num_microbatches=32)
    return Comparison(
        label=label(other), estimate=estimate(other, factor=1.1), refused_because=(), rank=None, winner=result().plans[0],
        needed=("its GEMMs ran 9 % faster than the model says",), better_listed=3, better=16,
    )


def packed(mode: str = "meshwright", *, model: bool = True) -> Packed:
    """Samples in micro-batches: under our own rules with three limits, or as another program exceeds its limit."""
    over = mode != "meshwright"
    total = Figures(
        microbatches=64, most_of_a_rank=16, tokens=500_000, most_tokens=8704 if over else 8192, slot_tokens=524_288,
        overflows=3 * over, dearest=32_900.0, imbalance_ratio=1.098 if over else 1.00001, microbatch_imbalance_ratio=1.1,
    )
    outcome = Outcome(
        steps=3, looked_at=3, left_over=7, step_samples=256, padding_before=0.759, padding_buckets=0.062, padding_after=0.046,
        total=total,
    )
    rules = Rules(max_tokens=8192, data_parallel=4, align=16, mode=mode)
    curve = tuple(
        Point(max_tokens=8192 * times, slot_tokens=8192 * times, packs=64 // times, trained_tokens_per_s=1e6 / factor,
              estimate=estimate(factor=factor, fits=times < 4))
        for times, factor in ((1, 1.0), (2, 0.97), (4, 0.96))
    )
    groups = (
        Group(first_rank=0, degree=4, samples=(0,), rank_tokens=8000),
        Group(first_rank=0, degree=2, samples=(3,), rank_tokens=6000),
        Group(first_rank=2, degree=1, samples=(1, 4), rank_tokens=7800),
        Group(first_rank=3, degree=1, samples=(2,), rank_tokens=7900),
    )
    dynamic = Dynamic(
        rank_tokens=8000, ranks=4, step=Step(groups=groups, loads=(10.0, 10.0, 10.1, 10.2)), samples_by_degree={1: 3, 2: 1, 4: 1},
        static_degree=4, static_ratio=1.25 if model else None,
    )
    lengths = np.array([100, 1500, 1500, 2500, 8000] * 155)
    return Packed(
        rules=rules, outcome=outcome, lower_bound=62, recommended=16384 if model else 8192, curve=curve if model else (),
        lengths=Samples(lengths=lengths, documents=len(lengths), longest_tokens=8000), dynamic=None if over else dynamic,
        speedup=Speedup(ratio=4.15, interval=(3.9, 4.77) if model else (4.15, 10.2), by="cost model" if model else "bounds"),
        keeping=7700 if over else None, keeping_any=6145 if over else None,
    )


def text(parts: Any, width: int = 110) -> str:
    """A report as it is piped."""
    from meshwright.report.console import show

    stream = io.StringIO()
    show(parts, stream, width)
    return stream.getvalue()


def reports() -> dict[str, str]:
    """Name of a golden file -> what it must hold."""
    from meshwright.report.compare import comparison_report
    from meshwright.report.estimate import estimate_report, term_table
    from meshwright.report.pack import pack_report
    from meshwright.report.plan import plan_report

    return {
        "plan.txt": text(plan_report(case(), result())),
        "nothing.txt": text(plan_report(case(), nothing()), 80),
        "estimate.txt": text([*estimate_report(case(), estimate(fits=False)), *term_table(estimate())], 80),
        "compare.txt": text(comparison_report(comparison())),
        "pack.txt": "\n".join(
            text(pack_report(each), 100)
            for each in (packed(), packed(model=False), packed("chatlearn", model=False))
        ),
    }


if __name__ == "__main__" and "--update-golden" in sys.argv:
    GOLDEN.mkdir(exist_ok=True)
    for name, content in reports().items():
        (GOLDEN / name).write_text(content, encoding="utf-8")
