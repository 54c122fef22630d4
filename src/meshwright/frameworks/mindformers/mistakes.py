"""What MindFormers takes although it is wrong, and what its launch lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_mistakes
from meshwright.frameworks.ascend.habits import deterministic, whole_states
from meshwright.frameworks.ascend.recompute_lists import LISTS
from meshwright.frameworks.asking import above, at, is_false, is_not_true, is_true
from meshwright.frameworks.mindformers.ranges import counts_of_ranges, parse_ids, parse_stages
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

NAME = "mindformers"
_STAGES = "parallel_config.pipeline_stage"
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


def _gap(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("parallelism.pipeline_parallel_layers_per_stage")
    ranges = parse_stages(setting.value) if setting else None
    if setting and ranges:
        split = counts_of_ranges(ranges)
        layers = reading.said.figures.get("layers") or (case.model.num_layers if case else None)
        if split is None or (isinstance(layers, int) and sum(map(sum, split)) != layers):
            yield at(setting, f"ranges that cover 0-{layers - 1}" if isinstance(layers, int) else None)


def _interleaved(reading: Reading, case: Case | None) -> Iterator[Values]:
    chunks = reading.source.value("parallelism.pipeline_parallel_interleave_num")
    setting = reading.source.settings.get("parallelism.pipeline_parallel_schedule")
    if type(chunks) is int and chunks > 1 and (setting is None or setting.value == "1f1b"):
        yield at(setting, "interleaved_1f1b", vpp=chunks)


def _layer_ids(reading: Reading) -> Values | None:
    ids, layers = parse_ids(reading.source.value("recompute.full_recompute_layer")), reading.said.figures.get("layers")
    mtp = reading.said.figures.get("mtp_layers", 0)
    if not ids or not isinstance(layers, int):
        return None
    last = layers + (mtp if isinstance(mtp, int) else 0) - 1
    return values_if(max(ids) > last, last=last, value=max(ids), expected=last)


def _unused(reading: Reading, case: Case | None) -> Iterator[Values]:
    mode = reading.source.value("recompute.mode", "None")
    for key, wanted in (("recompute.full_recompute_layer", "full"), ("recompute.select_module", "select")):
        setting = next((each for name, each in reading.source.settings.items() if name == key or name.startswith(f"{key}.")), None)
        if setting and setting.value and mode != wanted:
            yield at(setting, wanted, key=key, mode=mode)


def _empty(reading: Reading) -> Values | None:
    key = {"full": "full_recompute_layer", "select": "select_module"}.get(str(reading.source.value("recompute.mode")), "")
    filled = any(name.startswith(f"recompute.{key}") and each.value for name, each in reading.source.settings.items())
    return values_if(key and not filled, key=key, expected=f"recompute.{key}")


_PYNATIVE = (
    Mistake("range-gap", "pipeline_parallel_layers_per_stage {value} leaves gaps, overlaps, or does not follow the pipeline; "
            "nothing checks that", _gap,
            source="mindformers/pynative/distributed/pipeline_parallel.py PpLayerSetting._init_explicit"),
    Mistake("dead-key", "{key} is never read: {instead}",
            At("parallelism.data_parallel_shard_strategy",
               values={"instead": "reshard_after_forward_policy decides between ZeRO-2 and ZeRO-3"}), "warning", "mindformers "
            "2.1.0, all of mindformers/pynative"),
    Mistake("default-schedule", "pipeline_parallel_schedule 1f1b with {vpp} chunks becomes interleaved_1f1b", _interleaved,
            "advice", "mindformers/pynative/distributed/pipeline_parallel.py _infer_schedule_type"),
    Mistake("recompute-layers", "layer id {value} out of range [0, {last}]", At("recompute.full_recompute_layer", when=_layer_ids),
            source="mindformers/pynative/distributed/activation_checkpoint.py"),
    Mistake("recompute-unused", "{key} has no effect with mode {mode}", _unused, "warning", "mindformers/pynative/config/config.py "
            "RecomputeConfig"),
    Mistake("recompute-empty", "mode is '{value}' but {key} is missing or empty", At("recompute.mode", when=_empty),
            source="mindformers/pynative/distributed/activation_checkpoint.py"),
    deterministic("training.deterministic"),
    *environment_mistakes(mindspore=True),
)


def _strategy(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("parallel.dataset_strategy")
    dp = reading.source.value("parallel_config.data_parallel", 1)
    if setting is None or reading.source.value("parallel.full_batch", True) is not False:
        return
    first = setting.value[0] if isinstance(setting.value, (list, tuple)) and setting.value else None
    if isinstance(first, (list, tuple)) and first and first[0] != dp:
        yield at(setting, dp, dp=dp, value=first[0])


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _is_one_or_unsaid(value: object) -> bool:
    return value in (None, 1)


def _longer(key: str) -> Callable[[Reading], Values | None]:
    """Whether a list of counts has more of them than there are stages: value ``pp``."""

    def longer(reading: Reading) -> Values | None:
        stages, counts = reading.source.value(_STAGES, 1), reading.source.value(key)
        if type(stages) is not int or not isinstance(counts, list) or any(type(each) is not int for each in counts):
            return None
        return values_if(len(counts) > stages, pp=stages, expected=stages)

    return longer


def _without_flash(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("model.model_config.use_flash_attention")
    several = above(1)(reading.source.value("parallel_config.context_parallel", 1))
    if several and (setting is None or setting.value is not True):
        yield at(setting, True, value=setting.value if setting else False)


def _gathered(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = "recompute_config.select_comm_recompute"
    setting, tp = reading.source.settings.get(key), reading.source.value("parallel_config.model_parallel", 1)
    if setting is None or setting.value in (None, False):
        return
    if tp == 1 or reading.source.value("parallel_config.use_seq_parallel") is not True:
        yield at(setting, None, key=key)


_BATCH = "mindformers/trainer/base_trainer.py _check_global_batch_size_for_auto_parallel"
_GRAPH = (
    Mistake("dataset-strategy", "data_parallel {dp} should be equal to dataset_strategy[0][0] {value}.", _strategy,
            source="mindformers/trainer/base_trainer.py"),
    Mistake("full-batch", "full_batch=True only supports dataset_strategy='full_batch', reset dataset_strategy {value} to "
            "'full_batch'.", At("parallel.dataset_strategy", "full_batch", _is_list, beside={"parallel.full_batch": is_true}),
            "warning", "mindformers/trainer/base_trainer.py"),
    Mistake("micro-batch-num", "When pipeline parallel is not enabled, config.parallel_config.micro_batch_num does not take "
            "effect. Reset it to 1.",
            At("parallel_config.micro_batch_num", "runner_config.gradient_accumulation_steps", above(1),
               beside={_STAGES: _is_one_or_unsaid}), "warning", _BATCH),
    Mistake("accumulation", "gradient_accumulation_steps {value} will not take effect in pipeline parallel",
            At("runner_config.gradient_accumulation_steps", "parallel_config.micro_batch_num", above(1),
               beside={_STAGES: above(1)}), "warning", _BATCH),
    Mistake("interleave-off", "pp_interleave_num {value} has no effect without parallel.pipeline_config.pipeline_interleave",
            At("model.model_config.pp_interleave_num", True, above(1),
               beside={_STAGES: above(1), "parallel.pipeline_config.pipeline_interleave": is_not_true}),
            source="mindformers/parallel_core/training_graph/transformer/utils.py LayerSetting"),
    Mistake("recompute-length", "length of {key} should be equal or less than pipeline_stage number, but get length of {key} "
            "({value}) > pp({pp})",
            tuple(At(f"recompute_config.{name}", when=_longer(f"recompute_config.{name}"), values={"key": name}) for name in LISTS),
            source="mindformers/tools/check_rules.py _rule_recompute"),
    Mistake("slice-activation", "For recompute, `recompute_slice_activation` is not supported in Mcore.",
            At("recompute_config.recompute_slice_activation", False, is_true, beside={"use_legacy": is_false}), "warning",
            "mindformers 2.1.0 parallel_core/transformer_config.py"),
    Mistake("copies", "micro_batch_interleave_num > 1, is not supported when use_legacy=False.",
            At("micro_batch_interleave_num", 1, above(1), beside={"use_legacy": is_false}),
            source="mindformers/trainer/base_trainer.py"),
    Mistake("context-flash", "context_parallel is only available for flash attention for now, but got use_flash_attention {value}, "
            "please set use_flash_attention=True", _without_flash, source="mindformers/tools/check_rules.py"),
    Mistake("select-comm", "{key} recomputes nothing: without sequence parallelism over model_parallel no norm is gathered",
            _gathered, "advice", "docs of MindFormers, recompute_config: communication that sequence parallelism adds"),
    whole_states("enable_parallel_optimizer"),
    *environment_mistakes(mindspore=True),
)
PYNATIVE_CHECKS, GRAPH_CHECKS = checks(NAME, _PYNATIVE), checks(NAME, _GRAPH)
