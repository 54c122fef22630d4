"""A case and a layout, run for real: the request that ranks get, checked before anything starts, and the report that comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from meshwright.engine.launch import Task, launch
from meshwright.engine.refusals import refused
from meshwright.engine.request import Options, Request
from meshwright.errors import InputError, fault
from meshwright.estimate.evaluate import schedule_of, split_of
from meshwright.estimate.single import model_flops

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Schedule
    from meshwright.domain.training import Precision
    from meshwright.engine.launch import Start
    from meshwright.engine.report import StepReport

TARGET = "meshwright.engine.measure:measure"
"""What every rank runs."""
HALVES = ("bf16",)
"""Precision recipes whose products are BF16; all others than these and FP32 are refused."""


def check_recipe(precision: Precision) -> None:
    """Refuse a recipe that the reference step has not."""
    if precision.gemm_dtype not in ("fp32", *HALVES):
        raise fault(
            "engine.precision", "precision {name} is not in the reference step, which computes in bf16 or fp32", name=precision.name
        )


def request_of(case: Case, layout: Layout, options: Options) -> Request:
    """What the ranks need to know of a case: stages by the case's implementation, FLOPs by its convention.

    Errors:  InputError where the recipe or the batch is none that the reference step can run.
    """
    precision, batch = case.training.precision, case.batch
    check_recipe(precision)
    if case.training.task == "lora":
        raise fault("engine.task", "task lora is not in the reference step, which trains every weight")
    sequences = layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches
    if sequences != batch.global_batch_sequences:
        raise fault("engine.batch", "dp x mb x micro-batches = {found} sequences, and the global batch is {wanted}",
                     found=sequences, wanted=batch.global_batch_sequences)
    settled = replace(layout, schedule=cast("Schedule", schedule_of(layout)))
    if layout.pipeline_parallel > 1:
        settled = replace(settled, stage_layers=split_of(case, layout))
    return Request(
        model=case.model, layout=settled, sequence_tokens=batch.sequence_tokens, bf16=precision.gemm_dtype in HALVES,
        flops_per_step=model_flops(case), flops_convention=case.flops_convention,
        peak_flops_per_s=case.cluster.device.peak_flops_per_s.get(precision.gemm_dtype), options=options,
    )


def run(
    case: Case, layout: Layout, options: Options | None = None, *, save: Path | None = None, limit_s: float | None = None,
    start: Start | None = None,
) -> StepReport:
    """Run a layout on this machine -> what was measured, written to ``save`` as JSON where asked.

    Errors:  InputError where it cannot start, with every reason; NoAnswerError where it fails, with the first cause.
    """
    return run_request(request_of(case, layout, options or Options()), save=save, limit_s=limit_s, start=start)


def run_request(
    request: Request, *, save: Path | None = None, limit_s: float | None = None, start: Start | None = None
) -> StepReport:
    """The same of a request; ``start`` starts a rank (``launch``)."""
    messages = refused(request)
    if messages:
        raise InputError(messages)
    task = Task(
        target=TARGET,
        payload=request,
        backend=request.options.backend,
        threads=request.options.threads,
    )
    report: StepReport = launch(task, request.layout.world, limit_s=limit_s, start=start)[0]
    if save is not None:
        report.save(save)
    return report
