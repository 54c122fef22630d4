"""Logs of torchtitan, nanotron, MaxText, MindSpore, DeepSpeed and loops of others: what the list says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from benchmarks.samples import Expected
from benchmarks.samples._asking import Said, asked, each_step, part_ms, setting, signs, step_ms
from meshwright.domain.observed import Bandwidths
from meshwright.readers.formats import Observed
from meshwright.units import GIB, GIGA, KIB, MIB, TERA

_TITAN = "torchtitan_log/issue_pytorch_torchtitan_PR2389.log"
_NANOTRON = "nanotron_log/issue_huggingface_nanotron_390.log"
_MAXTEXT = "maxtext_log/maxtext_PR2232.log"
_YOLO = "mindspore_log/issue_mindyolo_402_steptime.log"
_MSRUN = "mindspore_log/mindspore-docs_llama2_13b_msrun.log"
_COMMS = "deepspeed_log/docs_comms_logging_summary.txt"
_FLOPS = "deepspeed_log/docs_flops_profiler_output.txt"
_LAYOUT = "deepspeed_log/issue_DeepSpeed_1436_layoutlmv2.log"
_BERT = "deepspeed_log/issue_DeepSpeed_255_bert.log"
_HF = "hf_trainer_log/bigscience_hf_ds_gpt2_base_n4-1832555.out"
_NANOGPT = "hf_trainer_log/issue_nanoGPT_110_iter.log"

OTHERS = (
    *asked(
        _TITAN,
        {
            "steps": ("4 5", lambda log: each_step(log, lambda step: step.number, 0, 1)),
            "tps": ("10050.0 10007.0", lambda log: each_step(log, lambda step: step.tokens_per_s_per_device, 0, 1)),
            "mfu": ("0.1399 0.1393", lambda log: each_step(log, lambda step: step.mfu_ratio, 0, 1)),
            "memory, GiB": (66.91, lambda log: (log.steps[0].memory_bytes or 0) / GIB),
            "memory, ratio": (0.3751, lambda log: (log.steps[0].memory_bytes or 0) / log.figures["device_memory_bytes"]),
            "peak, TFLOP/s": (2250, lambda log: log.figures["peak_flops_per_s_per_device"] / TERA),
        },
        tolerance=1e-3,
    ),
    *asked(
        _NANOTRON,
        {
            "iterations": ("327281 327284", lambda log: each_step(log, lambda step: step.number, 0, 3)),
            "count": (4, lambda log: len(log.steps)),
            "ms": (11500, step_ms),
            "tokens/s/device": (11400, lambda log: log.steps[0].tokens_per_s_per_device),
            "world": (2, lambda log: log.world),
            "global batch": (64, lambda log: log.steps[0].sequences),
            "TFLOP/s": (38.3, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
            "seconds apart": (
                "11 12 11",
                lambda log: " ".join(
                    f"{(after.at_s or 0) - (before.at_s or 0):.0f}" for before, after in zip(log.steps, log.steps[1:], strict=False)
                ),
            ),
        },
    ),
    *asked(
        _MAXTEXT,
        {
            "step": (9, lambda log: log.steps[0].number),
            "s": (5.667, lambda log: log.steps[0].step_s),
            "TFLOP/s": (134.924, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
            "tokens per device and step": (
                49148.5,
                lambda log: (log.steps[0].tokens_per_s_per_device or 0) * (log.steps[0].step_s or 0),
            ),
            "by the weights": (49152, lambda log: (log.steps[0].tokens or 0) / (log.world or 1)),
            "loss": (10.374, lambda log: log.steps[0].loss),
        },
        tolerance=1e-4,
    ),
    *asked(
        _YOLO,
        {
            "ms": (
                "5736.71 654.4 694.17 660.74",
                lambda log: each_step(log, lambda step: round(1e3 * (step.step_s or 0), 3), 0, 1, 2, 3),
            ),
            "median ms": (677.455, step_ms),
            "median ms without the first": (660.74, lambda log: step_ms(log, 1)),
            "overflows": (2, signs("scale.overflow")),
        },
    ),
    *asked(
        _MSRUN,
        {
            "ms": ("103328.0 1752.0 1754.0", lambda log: each_step(log, lambda step: round(1e3 * (step.step_s or 0), 3), 0, 1, 2)),
            "T": (
                "2.896 170.738 170.523",
                lambda log: each_step(log, lambda step: round((step.model_flops_per_s_per_device or 0) / TERA, 3), 0, 1, 2),
            ),
            "median ms without the first": (1753, lambda log: step_ms(log, 1)),
        },
    ),
    *asked(
        _HF,
        {
            "train_runtime": (919.097, lambda log: log.figures["train_runtime_s"]),
            "samples/s": (1.088, lambda log: log.figures["samples_per_s"]),
            "steps/s": (0.017, lambda log: log.figures["steps_per_s"]),
            "epoch": (1.0, lambda log: log.figures["epoch"]),
            "steps": (16, lambda log: len(log.steps)),
            "world": (16, lambda log: log.world),
            "layers, as overridden": ("40", setting("model_config.n_layer")),
            "hidden width, as overridden": ("7168", setting("model_config.n_embd")),
            "ZeRO stage of the printed JSON": ("3", setting("deepspeed.zero_optimization.stage")),
        },
        format="hf_trainer",
    ),
    *asked(_HF, {"ZeRO stage": ("3", setting("zero_optimization_stage"))}, format="deepspeed"),
    *asked(
        _NANOGPT,
        {
            "iterations": ("1631 1641", lambda log: each_step(log, lambda step: step.number, 0, 10)),
            "count": (11, lambda log: len(log.steps)),
            "median ms": (562.66, step_ms),
        },
    ),
    *asked(
        _FLOPS,
        {
            "parameters, M": (336.23, lambda log: log.figures["parameters"] / 1e6),
            "fwd, ms": (76.67, part_ms("fwd")),
            "bwd, ms": (108.02, part_ms("bwd")),
            "fwd+bwd TFLOPS": (102.0, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
            "iteration, ms": (184.73, step_ms),
            "samples/s": (433.07, lambda log: log.figures["samples_per_s"]),
        },
    ),
    *asked(
        _LAYOUT,
        {
            "records": (7, lambda log: log.figures["timer_records"]),
            "steps with an optimizer": (2, lambda log: len(log.steps)),
            "forward": (316.435, part_ms("forward")),
            "backward": (744.145, part_ms("backward")),
            "its all-reduce": (229.475, part_ms("backward_allreduce")),
            "step": (661.34, part_ms("step")),
            "optimizer_step": (574.38, part_ms("optimizer_step")),
            "whole, ms": (1716.94, lambda log: 1e3 * (log.steps[1].step_s or 0)),
            "optimizer_step, share": (0.33454, lambda log: log.steps[1].parts["optimizer_step"] / (log.steps[1].step_s or 1)),
        },
        tolerance=1e-4,
    ),
    *asked(
        _BERT,
        {
            "records": (5, lambda log: log.figures["timer_records"]),
            "forward": (193.65, part_ms("forward_microstep")),
            "backward": (329.25, part_ms("backward_microstep")),
            "samples/s": (7.4588, lambda log: log.figures["samples_per_s"]),
            "step time": ("None", lambda log: str(log.steps[0].step_s)),
        },
        tolerance=1e-5,
    ),
)


def _table(got: Callable[[Bandwidths], Said], seen: Observed) -> Said:
    return got(next(each for each in seen.observations if isinstance(each, Bandwidths)))


def _rows(file: str, rows: Mapping[str, tuple[Said, Callable[[Bandwidths], Said]]]) -> Iterable[Expected]:
    for what, (want, got) in rows.items():
        yield Expected(file=file, what=what, want=want, got=partial(_table, got))


COMMS = tuple(
    _rows(
        _COMMS,
        {
            "rows": (6, lambda table: len(table.rows)),
            "broadcast, size and count": (
                "2.0 146 98.25 1",
                lambda table: " ".join(
                    f"{each.message_bytes / unit} {each.count}" for each, unit in zip(table.rows, (KIB, MIB), strict=False)
                ),
            ),
            "broadcast, ms": (
                "0.08 8317.12",
                lambda table: " ".join(str(round(1e3 * (each.time_s or 0), 2)) for each in table.rows[:2]),
            ),
            "reduce_scatter_tensor, MB": (678.86, lambda table: table.rows[2].message_bytes / MIB),
            "its count": (40, lambda table: table.rows[2].count),
            "its ms": (9.69, lambda table: 1e3 * (table.rows[2].time_s or 0)),
            "its busbw, Gbps": (1376.31, lambda table: table.rows[2].bus_bytes_per_s * 8 / GIGA),
            "second table: count": (80, lambda table: table.rows[5].count),
            "second table: ms": (13.94, lambda table: 1e3 * (table.rows[5].time_s or 0)),
            "second table: busbw, Gbps": (1136.01, lambda table: table.rows[5].bus_bytes_per_s * 8 / GIGA),
            "second table: caller": ("reduce_scatter_fn", lambda table: table.rows[5].group),
        },
    )
)

EXPECTED = (*OTHERS, *COMMS)
