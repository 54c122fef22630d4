"""Logs of Megatron-LM and its kin: what the list says of each, asked of the values that were read."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.samples._asking import Said, asked, each_step, part_ms, setting, share, signs, step_ms
from meshwright.domain.observed import RunLog
from meshwright.units import GIB, GIGA, MIB, TERA

_OFF = "megatron_log/bigscience_meg_ds_3d_gpt2_perf_n16-ds-off.out"
_ON = "megatron_log/bigscience_meg_ds_3d_gpt2_perf_n16-ds-on.out"
_PP4 = "megatron_log/bigscience_meg_gpt2_base_n4_dp1_tp4_pp4-1809579.out"
_PP64 = "megatron_log/bigscience_meg_gpt2_base_n64_dp1_tp4_pp64-1809655.out"
_ABCI = "megatron_log/abci_howto_7b.log"
_AURORA = "megatron_log/aurora_megads_minmax_timers.log"
_AWS = "megatron_log/awsome_gpt3_README_rankprefix.log"
_BRIDGE = "megatron_log/cloudai_fixture_megatron_bridge_wrapped.log"
_RUN = "megatron_log/cloudai_fixture_megatron_run.log"
_SAVE = "megatron_log/dgxc_save_checkpoint_inline.log"
_PREFIX = "megatron_log/gpt70b_mcore_timers_logger_prefix_20260328.log"
_MOE = "megatron_log/issue_NVIDIA_Megatron-LM_1841_moe_A100_slow.log"
_T5 = "megatron_log/issue_NVIDIA_Megatron-LM_184_t5_timers.log"
_PRIMUS = "megatron_log/primus_ansi_rocm.log"


def _tiled(microbatches: int, stages: int) -> Callable[[RunLog], Said]:
    """``(m + p - 1) / m`` of forward and backward, and what follows them: the built-in test of a pipeline's timers; ms."""

    def total(log: RunLog) -> float:
        def part(name: str) -> float:
            return float(part_ms(name)(log) or 0.0)

        work = (part("forward-compute") + part("backward-compute")) * (microbatches + stages - 1) / microbatches
        return work + part("optimizer") + part("backward-params-all-reduce")

    return total


_LAYOUT_NAMES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "num_layers",
    "hidden_size",
    "micro_batch_size",
    "global_batch_size",
)

EXPECTED = (
    *asked(
        _ABCI,
        {
            "iterations": ("10 20", lambda log: each_step(log, lambda step: step.number, 0, 1)),
            "ms": ("13035.3 12137.8", lambda log: each_step(log, lambda step: round(1e3 * (step.step_s or 0), 3), 0, 1)),
            "TFLOP/s": (
                "812.5 872.5",
                lambda log: each_step(log, lambda step: (step.model_flops_per_s_per_device or 0) / TERA, 0, 1),
            ),
            "averaged over": ("10 10", lambda log: each_step(log, lambda step: step.averaged, 0, 1)),
            "skipped": ("10 5", lambda log: each_step(log, lambda step: step.skipped, 0, 1)),
            "global batch": (1024, lambda log: log.steps[0].sequences),
            "parameters, 1e9": (6.44, lambda log: log.figures["parameters"] / GIGA),
            "theory: weight and optimizer, MB": (46038.57, lambda log: log.figures["theory_weight_and_optimizer_bytes"] / MIB),
            "first line has a loss": ("None", lambda log: str(log.steps[0].loss)),
        },
    ),
    *asked(
        _AURORA,
        {
            "ms": (29570.0, step_ms),
            "global batch": (768, lambda log: log.steps[0].sequences),
            "sequence": (4096, lambda log: log.sequence_tokens),
            "tokens of the step": (3145728, lambda log: log.steps[0].tokens),
            "world": (24, lambda log: log.world),
            "LM TFLOP/s": (20.30, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
            "DS TFLOP/s": (26.18, lambda log: log.figures["deepspeed_flops_per_s_per_device"] / TERA),
            "tokens/s/device": (4432.597, lambda log: log.steps[0].tokens_per_s_per_device),
            "max reserved, MB": (11342.0, lambda log: (log.memory[0].max_reserved_bytes or 0) / MIB),
            "forward-backward, least": (26094.39, lambda log: 1e3 * log.steps[0].least["forward-backward"]),
            "optimizer, most": (3409.92, part_ms("optimizer")),
            "optimizer, share": (0.11532, share("optimizer")),
        },
        tolerance=1e-4,
    ),
    *asked(
        _AWS,
        {
            "iterations": ("25 27", lambda log: each_step(log, lambda step: step.number, 0, 2)),
            "median ms": (87.0, step_ms),
            "global batch": (2, lambda log: log.steps[0].sequences),
        },
    ),
    *asked(
        _OFF,
        {
            "iterations": (62, lambda log: len(log.steps)),
            "median ms": (126667.2, step_ms),
            "world": (64, lambda log: log.world),
            "TP PP layers hidden mb gbs": ("4 16 64 8192 4 1024", setting(*_LAYOUT_NAMES)),
            "sequence": (1024, lambda log: log.sequence_tokens),
            "memory records": (64, lambda log: len(log.memory)),
            "forward-compute": (28136, part_ms("forward-compute")),
            "backward-compute": (74919, part_ms("backward-compute")),
            "pipeline wait": (17811, part_ms("backward-send-forward-recv")),
            "embedding all-reduce": (4157.4, part_ms("backward-embedding-all-reduce")),
        },
        tolerance=1e-4,
    ),
    *asked(
        _ON,
        {
            "iterations": (49, lambda log: len(log.steps)),
            "median ms": (137138.4, step_ms),
            "steps with timers": (0, lambda log: sum(bool(step.parts) for step in log.steps)),
        },
    ),
    *asked(
        _PP4,
        {
            "iterations": (20, lambda log: len(log.steps)),
            "last": (200, lambda log: log.steps[-1].number),
            "median ms": (1380.6, step_ms),
            "global batch": (4, lambda log: log.steps[0].sequences),
            "world": (16, lambda log: log.world),
            "TP PP layers hidden mb gbs": ("4 4 40 6144 1 4", setting(*_LAYOUT_NAMES)),
            "sequence": (1024, lambda log: log.sequence_tokens),
            "memory records": (16, lambda log: len(log.memory)),
            "max allocated, MB": (
                "24299 26205",
                lambda log: " ".join(
                    str(round(of((each.max_allocated_bytes or 0) / MIB for each in log.memory))) for of in (min, max)
                ),
            ),
            "steps with timers": (20, lambda log: sum(bool(step.parts) for step in log.steps)),
            "timers outside of steps": (3, lambda log: len(log.timers)),
            "forward-compute": (176.0, part_ms("forward-compute")),
            "backward-compute": (514.9, part_ms("backward-compute")),
            "forward-recv": (126.4, part_ms("forward-recv")),
            "embedding all-reduce": (418.6, part_ms("backward-embedding-all-reduce")),
            "optimizer": (115.1, part_ms("optimizer")),
            "params all-reduce": (23.2, part_ms("backward-params-all-reduce")),
            "(m+p-1)/m, ms": (1347, _tiled(4, 4)),
        },
        tolerance=5e-4,
    ),
    *asked(
        _PP64,
        {
            "iterations": (6, lambda log: len(log.steps)),
            "last": (60, lambda log: log.steps[-1].number),
            "median ms": (6725.85, step_ms),
            "world": (256, lambda log: log.world),
            "memory records": (256, lambda log: len(log.memory)),
            "TP PP layers hidden mb gbs": ("4 64 64 16384 1 4", setting(*_LAYOUT_NAMES)),
            "forward-compute": (118.9, part_ms("forward-compute")),
            "backward-compute": (321.7, part_ms("backward-compute")),
            "forward-recv": (1581.8, part_ms("forward-recv")),
            "embedding all-reduce": (4569.2, part_ms("backward-embedding-all-reduce")),
            "embedding all-reduce, share": (0.679, share("backward-embedding-all-reduce")),
            "optimizer": (101.3, part_ms("optimizer")),
            "(m+p-1)/m, ms": (7501, _tiled(4, 64)),
        },
        tolerance=1e-3,
    ),
    *asked(
        _BRIDGE,
        {
            "iteration": (50, lambda log: log.steps[0].number),
            "ms": (9089.0, step_ms),
            "global batch": (512, lambda log: log.steps[0].sequences),
            "loss": (8.114214, lambda log: log.steps[0].loss),
            "skipped": (0, lambda log: log.steps[0].skipped),
            "TFLOP/s": (663.5, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
            "records": (1, lambda log: len(log.steps)),
        },
    ),
    *asked(
        _RUN,
        {
            "iterations": ("5 6", lambda log: each_step(log, lambda step: step.number, 0, 1)),
            "ms": ("15800.0 15639.0", lambda log: each_step(log, lambda step: round(1e3 * (step.step_s or 0), 3), 0, 1)),
            "TFLOP/s": (
                "490.0 494.6",
                lambda log: each_step(log, lambda step: (step.model_flops_per_s_per_device or 0) / TERA, 0, 1),
            ),
            "global batch": (2048, lambda log: log.steps[0].sequences),
            "skipped": (0, lambda log: sum(step.skipped for step in log.steps)),
            "balance loss of experts": (1.000202, lambda log: log.figures["load_balancing_loss"]),
        },
    ),
    *asked(
        _SAVE,
        {
            "timer": ("save-checkpoint", lambda log: log.timers[0].name),
            "least ms": (24895.07, lambda log: 1e3 * log.timers[0].least_s),
            "most ms": (24895.13, lambda log: 1e3 * log.timers[0].most_s),
            "iterations": (0, lambda log: len(log.steps)),
        },
    ),
    *asked(
        _PREFIX,
        {
            "timers": (
                "model-and-optimizer-setup train/valid/test-data-iterators-setup",
                lambda log: " ".join(each.name for each in log.timers),
            ),
            "set-up, ms": (1022.97, lambda log: 1e3 * log.timers[0].most_s),
            "iterators, least ms": (190.27, lambda log: 1e3 * log.timers[1].least_s),
            "iterations": (0, lambda log: len(log.steps)),
            "CUDA_DEVICE_MAX_CONNECTIONS": (1, signs("environment.max_connections")),
        },
    ),
    *asked(
        _MOE,
        {
            "iteration": (1100, lambda log: log.steps[0].number),
            "ms": (28837.4, step_ms),
            "global batch": (128, lambda log: log.steps[0].sequences),
            "TFLOP/s": (19.8, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
        },
    ),
    *asked(
        _T5,
        {
            "lines of timers per iteration": (4, lambda log: sum(bool(step.parts) for step in log.steps)),
            "params all-reduce, ms": (
                "2672.65 2805.27 3067.17 3248.3",
                lambda log: each_step(log, lambda step: round(1e3 * step.parts["backward-params-all-reduce"], 2), 0, 1, 2, 3),
            ),
            "its share, %": (
                "55 52 50 46",
                lambda log: each_step(
                    log,
                    lambda step: round(
                        100
                        * step.parts["backward-params-all-reduce"]
                        / sum(
                            step.parts[name]
                            for name in ("forward-compute", "backward-compute", "backward-params-all-reduce", "optimizer")
                        )
                    ),
                    0,
                    1,
                    2,
                    3,
                ),
            ),
            "step time": ("None", lambda log: str(log.steps[0].step_s)),
        },
    ),
    *asked(
        _PRIMUS,
        {
            "iteration": (4408, lambda log: log.steps[0].number),
            "ms": (13100.0, step_ms),
            "global batch": (128, lambda log: log.steps[0].sequences),
            "TFLOP/s": (579.4, lambda log: (log.steps[0].model_flops_per_s_per_device or 0) / TERA),
            "tokens/s/device": (10005.5, lambda log: log.steps[0].tokens_per_s_per_device),
            "world": (8, lambda log: log.world),
            "sequence": (8192, lambda log: log.sequence_tokens),
            "memory, ratio": (0.6009, lambda log: (log.steps[0].memory_bytes or 0) / log.figures["device_memory_bytes"]),
            "memory, GB": (153.81, lambda log: (log.steps[0].memory_bytes or 0) / GIB),
        },
        tolerance=1e-4,
    ),
)
