"""What MindFormers takes although it is wrong, and what its launch lacks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_checks
from meshwright.frameworks.ascend.habits import deterministic, whole_states
from meshwright.frameworks.asking import at
from meshwright.frameworks.mindformers.ranges import counts_of_ranges, parse_ids, parse_stages
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

NAME = "mindformers"
OPEN_SECTIONS = ("optimizer", "lr_scheduler", "train_dataset.dataloader", "model", "callbacks", "monitor")
"""PyNative sections that take any key."""
GRAPH_CLOSED = {"parallel_config", "recompute_config", "swap_config", "moe_config", "runner_config", "monitor_config"}
PYNATIVE_CLOSED = {"checkpoint", "training", "parallelism", "train_dataset", "context", "profiler", "recompute", "recompute_comm",
                   "swap", "lora_config", "inference"}


def unknown_pynative(key: str) -> tuple[Severity, str] | None:
    """Sections are closed, but for those that pass their keys on."""
    section = key.partition(".")[0]
    if key.startswith("-") or any(key == name or key.startswith(f"{name}.") for name in OPEN_SECTIONS):
        return None
    if key.startswith(("recompute.select_module", "recompute_comm.select_module", "recompute.exclude_op")):
        return None
    if section in PYNATIVE_CLOSED:
        return "error", "Unknown configuration keys: ['{key}']"
    return "warning", "{key} is kept, and no trainer reads it"


def unknown_graph(key: str) -> tuple[Severity, str] | None:
    """A few sections are closed; the others go to MindSpore, to the model or to the data set as they are."""
    section = key.partition(".")[0]
    if section in GRAPH_CLOSED and not key.startswith(("recompute_config.select", "swap_config.", "monitor_config.")):
        return "error", f"The config '{section}' gets an unexpected key: {{key}}"
    return None


def pynative_checks() -> tuple[Check, ...]:
    """Checks of PyNative files."""
    checks: list[Check] = []
    add = partial(file_rule, checks)

    @add(f"{NAME}.range-gap", "pipeline_parallel_layers_per_stage {value} leaves gaps, overlaps, or does not follow the "
                              "pipeline; nothing checks that",
         source="mindformers/pynative/distributed/pipeline_parallel.py PpLayerSetting._init_explicit")
    def _gap(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("parallelism.pipeline_parallel_layers_per_stage")
        ranges = parse_stages(setting.value) if setting else None
        if setting and ranges:
            split = counts_of_ranges(ranges)
            layers = reading.said.figures.get("layers") or (case.model.num_layers if case else None)
            if split is None or (isinstance(layers, int) and sum(map(sum, split)) != layers):
                yield {"value": setting.value, "expected": f"ranges that cover 0-{layers - 1}" if isinstance(layers, int) else None,
                       "path": setting.place}

    @add(
        f"{NAME}.dead-key",
        "{key} is never read: {instead}",
        severity="warning",
        source="mindformers 2.1.0, all of mindformers/pynative",
    )
    def _dead(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("parallelism.data_parallel_shard_strategy")
        if setting:
            yield at(setting, None, key=setting.key, instead="reshard_after_forward_policy decides between ZeRO-2 and ZeRO-3")

    @add(
        f"{NAME}.default-schedule",
        "pipeline_parallel_schedule 1f1b with {vpp} chunks becomes interleaved_1f1b",
        severity="advice",
        source="mindformers/pynative/distributed/pipeline_parallel.py _infer_schedule_type",
    )
    def _schedule(reading: Reading, case: Case | None) -> Iterator[Values]:
        chunks = reading.source.value("parallelism.pipeline_parallel_interleave_num")
        setting = reading.source.settings.get("parallelism.pipeline_parallel_schedule")
        if type(chunks) is int and chunks > 1 and (setting is None or setting.value == "1f1b"):
            yield at(setting, "interleaved_1f1b", vpp=chunks)

    @add(
        f"{NAME}.recompute-layers",
        "layer id {value} out of range [0, {last}]",
        source="mindformers/pynative/distributed/activation_checkpoint.py",
    )
    def _layers(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("recompute.full_recompute_layer")
        ids = parse_ids(setting.value) if setting else None
        layers = reading.said.figures.get("layers")
        if setting and ids and isinstance(layers, int):
            mtp = reading.said.figures.get("mtp_layers", 0)
            last = layers + (mtp if isinstance(mtp, int) else 0) - 1
            if max(ids) > last:
                yield at(setting, last, last=last, value=max(ids))

    @add(
        f"{NAME}.recompute-unused",
        "{key} has no effect with mode {mode}",
        severity="warning",
        source="mindformers/pynative/config/config.py RecomputeConfig",
    )
    def _unused(reading: Reading, case: Case | None) -> Iterator[Values]:
        mode = reading.source.value("recompute.mode", "None")
        for key, wanted in (("recompute.full_recompute_layer", "full"), ("recompute.select_module", "select")):
            setting = next(
                (each for name, each in reading.source.settings.items() if name == key or name.startswith(f"{key}.")), None
            )
            if setting and setting.value and mode != wanted:
                yield at(setting, wanted, key=key, mode=mode)

    @add(
        f"{NAME}.recompute-empty",
        "mode is '{value}' but {key} is missing or empty",
        source="mindformers/pynative/distributed/activation_checkpoint.py",
    )
    def _empty(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("recompute.mode")
        key = {"full": "full_recompute_layer", "select": "select_module"}.get(str(setting.value) if setting else "")
        if (
            setting
            and key
            and not any(name.startswith(f"recompute.{key}") and each.value for name, each in reading.source.settings.items())
        ):
            yield {"value": setting.value, "key": key, "expected": f"recompute.{key}", "path": setting.place}

    return (*checks, deterministic(NAME, "training.deterministic"), *environment_checks(NAME, mindspore=True))


def graph_checks() -> tuple[Check, ...]:
    """Checks of graph-mode files."""
    checks: list[Check] = []
    add = partial(file_rule, checks)

    @add(
        f"{NAME}.dataset-strategy",
        "data_parallel {dp} should be equal to dataset_strategy[0][0] {value}.",
        source="mindformers/trainer/base_trainer.py",
    )
    def _strategy(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("parallel.dataset_strategy")
        dp = reading.source.value("parallel_config.data_parallel", 1)
        if (
            setting is None
            or reading.source.value("parallel.full_batch", True) is not False
            or not isinstance(setting.value, (list, tuple))
        ):
            return
        first = setting.value[0] if setting.value else None
        if isinstance(first, (list, tuple)) and first and first[0] != dp:
            yield at(setting, dp, dp=dp, value=first[0])

    @add(f"{NAME}.full-batch", "full_batch=True only supports dataset_strategy='full_batch', reset dataset_strategy {value} to "
                               "'full_batch'.",
         severity="warning", source="mindformers/trainer/base_trainer.py")
    def _full(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("parallel.dataset_strategy")
        if setting and isinstance(setting.value, (list, tuple)) and reading.source.value("parallel.full_batch") is True:
            yield at(setting, "full_batch")

    @add(f"{NAME}.micro-batch-num", "When pipeline parallel is not enabled, config.parallel_config.micro_batch_num does not take "
                                    "effect. Reset it to 1.",
         severity="warning", source="mindformers/trainer/base_trainer.py _check_global_batch_size_for_auto_parallel")
    def _microbatches(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("parallel_config.micro_batch_num")
        if (
            setting
            and type(setting.value) is int
            and setting.value > 1
            and reading.source.value("parallel_config.pipeline_stage", 1) in (None, 1)
        ):
            yield at(setting, "runner_config.gradient_accumulation_steps")

    @add(
        f"{NAME}.accumulation",
        "gradient_accumulation_steps {value} will not take effect in pipeline parallel",
        severity="warning",
        source="mindformers/trainer/base_trainer.py _check_global_batch_size_for_auto_parallel",
    )
    def _accumulation(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("runner_config.gradient_accumulation_steps")
        stages = reading.source.value("parallel_config.pipeline_stage", 1)
        if setting and type(setting.value) is int and setting.value > 1 and type(stages) is int and stages > 1:
            yield at(setting, "parallel_config.micro_batch_num")

    @add(
        f"{NAME}.interleave-off",
        "pp_interleave_num {value} has no effect without parallel.pipeline_config.pipeline_interleave",
        severity="error",
        source="mindformers/parallel_core/training_graph/transformer/utils.py LayerSetting",
    )
    def _interleave(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("model.model_config.pp_interleave_num")
        stages = reading.source.value("parallel_config.pipeline_stage", 1)
        on = reading.source.value("parallel.pipeline_config.pipeline_interleave") is True
        if setting and type(setting.value) is int and setting.value > 1 and not on and type(stages) is int and stages > 1:
            yield at(setting, True)

    @add(f"{NAME}.recompute-length", "length of {key} should be equal or less than pipeline_stage number, but get length of {key} "
                                     "({value}) > pp({pp})",
         source="mindformers/tools/check_rules.py _rule_recompute")
    def _length(reading: Reading, case: Case | None) -> Iterator[Values]:
        stages = reading.source.value("parallel_config.pipeline_stage", 1)
        for name in ("recompute", "select_recompute", "select_comm_recompute"):
            setting = reading.source.settings.get(f"recompute_config.{name}")
            if (
                setting
                and isinstance(setting.value, list)
                and all(type(each) is int for each in setting.value)
                and type(stages) is int
                and len(setting.value) > stages
            ):
                yield at(setting, stages, key=name, pp=stages)

    @add(f"{NAME}.slice-activation", "For recompute, `recompute_slice_activation` is not supported in Mcore.", severity="warning",
         source="mindformers 2.1.0 parallel_core/transformer_config.py")
    def _slice(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("recompute_config.recompute_slice_activation")
        if setting and setting.value is True and reading.source.value("use_legacy", True) is False:
            yield at(setting, False)

    @add(
        f"{NAME}.copies",
        "micro_batch_interleave_num > 1, is not supported when use_legacy=False.",
        source="mindformers/trainer/base_trainer.py",
    )
    def _copies(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("micro_batch_interleave_num")
        if setting and type(setting.value) is int and setting.value > 1 and reading.source.value("use_legacy", True) is False:
            yield at(setting, 1)

    @add(f"{NAME}.context-flash", "context_parallel is only available for flash attention for now, but got use_flash_attention "
                                  "{value}, please set use_flash_attention=True",
         source="mindformers/tools/check_rules.py")
    def _flash(reading: Reading, case: Case | None) -> Iterator[Values]:
        degree = reading.source.value("parallel_config.context_parallel", 1)
        setting = reading.source.settings.get("model.model_config.use_flash_attention")
        if type(degree) is int and degree > 1 and (setting is None or setting.value is not True):
            yield at(setting, True, value=setting.value if setting else False)

    return (*checks, whole_states(NAME, "enable_parallel_optimizer"), *environment_checks(NAME, mindspore=True))
