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

from meshwright.domain.case import Case
from meshwright.domain.cluster import Cluster, Device, Link
from meshwright.domain.estimate import Estimate, Fits, HostMemory, Infeasible, Stage, StageMemory, Term, TimeSplit, Unmet
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout
from meshwright.domain.model import Attention, LayerKind, Mlp, Model
from meshwright.domain.training import Batch, Optimizer, Precision, Training
from meshwright.errors import Message
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
    implementation: Any = SimpleNamespace(name="megatron-te")
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
    from meshwright.report.plan import plan_report

    return {
        "plan.txt": text(plan_report(case(), result())),
        "nothing.txt": text(plan_report(case(), nothing()), 80),
        "estimate.txt": text([*estimate_report(case(), estimate(fits=False)), *term_table(estimate())], 80),
        "compare.txt": text(comparison_report(comparison())),
    }


if __name__ == "__main__" and "--update-golden" in sys.argv:
    GOLDEN.mkdir(exist_ok=True)
    for name, content in reports().items():
        (GOLDEN / name).write_text(content, encoding="utf-8")
