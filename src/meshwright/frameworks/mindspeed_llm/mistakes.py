"""What MindSpeed-LLM takes although it is wrong, what contradicts itself, and what its launch lacks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_checks
from meshwright.frameworks.ascend.habits import whole_states
from meshwright.frameworks.asking import at, differs, whole
from meshwright.frameworks.mindspeed_llm.layouts import parse_counts, parse_layout_text, parse_rank_lists
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

LISTS = ("--num-layer-list", "--pipeline-num-transformer-layers", "--pipeline-model-parallel-layout", "--noop-layers")


def unknown_flag(key: str) -> tuple[Severity, str] | None:
    """argparse stops."""
    return (
        ("error", "unrecognized arguments: {key}")
        if key.startswith("-")
        else ("warning", "{key} is no flag, and argparse stops at it")
    )


def flag_checks(name: str) -> tuple[Check, ...]:
    """Checks of launch scripts, with identifiers of one framework."""
    checks: list[Check] = []
    add = partial(file_rule, checks)

    @add(f"{name}.list-with-noops", "num layer list would be disabled when noop-layer is activated.",
         source="mindspeed_llm/features_manager/pipeline_parallel/num_layer_list.py")
    def _noops(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--num-layer-list")
        if setting and "--noop-layers" in reading.source.settings:
            yield at(setting, "one of --num-layer-list and --noop-layers")

    @add(
        f"{name}.list-length",
        "len(args.num_layer_list) != args.pipeline_model_parallel_size",
        source="mindspeed_llm/features_manager/pipeline_parallel/num_layer_list.py",
    )
    def _length(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--num-layer-list")
        counts = parse_counts(str(setting.value)) if setting else None
        stages = _int(reading, "--pipeline-model-parallel-size", 1)
        if setting and counts and len(counts) != stages:
            yield at(setting, stages, value=len(counts))

    @add(
        f"{name}.list-pipeline",
        "Dynamic pipeline model should work with pipeline parallel.",
        source="mindspeed_llm/features_manager/pipeline_parallel/num_layer_list.py",
    )
    def _pipeline(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--num-layer-list")
        if setting and _int(reading, "--pipeline-model-parallel-size", 1) <= 1:
            yield at(setting, None)

    @add(
        f"{name}.list-virtual",
        "Dynamic pipeline model and {other} cannot be enabled at the same time.",
        source="mindspeed_llm/features_manager/pipeline_parallel/num_layer_list.py",
    )
    def _virtual(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--num-layer-list")
        for flag, other in (("--num-layers-per-virtual-pipeline-stage", "virtual pipeline"), ("--schedules-method", "dualpipev")):
            if setting and flag in reading.source.settings:
                yield at(setting, None, other=other)

    @add(f"{name}.layer-sum", "{key} has {total} layers, --num-layers {layers}: {fate}",
         source="mindspeed/features_manager/pipeline_parallel/unaligned_pineline_feature.py refuses more layers "
                "only; num_layer_list.py compares nothing")
    def _sum(reading: Reading, case: Case | None) -> Iterator[Values]:
        layers, stages = _int(reading, "--num-layers", 0), _int(reading, "--pipeline-model-parallel-size", 1)
        for key in LISTS[:3]:
            setting = reading.source.settings.get(key)
            if setting is None or not isinstance(setting.value, str):
                continue
            counts = parse_counts(setting.value)
            split = ((counts,) if counts else None) if key == LISTS[0] else parse_rank_lists(setting.value) if key == LISTS[1] \
                else parse_layout_text(setting.value, stages)
            total = sum(map(sum, split)) if split else layers
            if layers and total != layers:
                yield {
                    "key": key,
                    "total": total,
                    "layers": layers,
                    "fate": "a smaller model is trained silently" if total < layers else "it stops",
                    "value": total,
                    "expected": layers,
                    "path": setting.place,
                }

    @add(
        f"{name}.list-exclusive",
        "{one} and {other} exclude each other",
        source="mindspeed/features_manager/pipeline_parallel/: incompatible_check",
    )
    def _exclusive(reading: Reading, case: Case | None) -> Iterator[Values]:
        for one, other in ((LISTS[1], LISTS[3]), (LISTS[1], LISTS[0]), (LISTS[2], LISTS[3]), (LISTS[2], LISTS[1])):
            setting = reading.source.settings.get(one)
            if setting and other in reading.source.settings:
                yield at(setting, None, one=one, other=other)

    @add(
        f"{name}.noop-range",
        "each element in args.noop_layers must be smaller than args.num_layers ({layers}): {value}",
        source="mindspeed: noop_layers feature",
    )
    def _range(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--noop-layers")
        ids = parse_counts(str(setting.value)) if setting else None
        layers = _int(reading, "--num-layers", 0)
        if setting and ids and layers and max(ids) >= layers:
            yield at(setting, layers - 1, layers=layers, value=max(ids))

    @add(
        f"{name}.dualpipev",
        "The dualpipev and {other} are incompatible.",
        source="mindspeed/features_manager/pipeline_parallel/dualpipev_feature.py",
    )
    def _dualpipev(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--schedules-method")
        if setting is None or setting.value != "dualpipev":
            return
        for flag, other in (
            ("--overlap-grad-reduce", "overlap_grad_reduce"),
            ("--swap-attention", "swap_attention"),
            ("--tp-2d", "tp_2d"),
            ("--num-layers-per-virtual-pipeline-stage", "virtual_pipeline"),
            ("--use-custom-fsdp", "use_custom_fsdp"),
            ("--pipeline-model-parallel-layout", "pipeline-model-parallel-layout"),
        ):
            if flag in reading.source.settings:
                yield {"other": other, "value": flag, "expected": None, "path": reading.source.settings[flag].place}

    @add(f"{name}.recompute-in-bubble", "{reason}", source="mindspeed/features_manager/recompute")
    def _bubble(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--recompute-in-bubble")
        if setting is None:
            return
        if not _virtual_stages(reading):
            yield at(setting, None, reason="recompute_in_bubble only support pipelining with interleaving", value=True)
        if _int(reading, "--recompute-num-layers", 0):
            yield at(setting, None, reason="recompute_num_layers must be None or 0 when using recompute_in_bubble", value=True)
        if "--swap-attention" in reading.source.settings:
            yield at(setting, None, reason="recompute-in-bubble dont support swap-attention", value=True)

    @add(f"{name}.recompute-in-advance", "--recompute-in-advance has no effect {reason}", severity="warning",
         source="mindspeed/features_manager/recompute; needs one layer per chunk")
    def _advance(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--recompute-in-advance")
        if setting is None:
            return
        if not _virtual_stages(reading):
            yield at(setting, None, reason="without interleaving", value=True)
        elif _int(reading, "--num-layers-per-virtual-pipeline-stage", 1) > 1:
            yield at(setting, None, reason="with more than one layer per chunk", value=True)

    @add(
        f"{name}.full-method",
        'Using recompute_granularity: full so recompute_method must be "block" or "uniform"',
        source="megatron/core/transformer/transformer_config.py",
    )
    def _method(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--recompute-granularity")
        if (
            setting
            and setting.value == "full"
            and "--recompute-method" not in reading.source.settings
            and "--recompute-in-bubble" not in reading.source.settings
        ):
            yield at(setting, "--recompute-method block|uniform", value="full")

    @add(
        f"{name}.selective-method",
        "recompute method is not yet supported for selective recomputing granularity",
        source="megatron/training/arguments.py",
    )
    def _selective(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--recompute-method")
        if setting and reading.source.value("--recompute-granularity") == "selective":
            yield at(setting, None)

    @add(
        f"{name}.swap-optimizer",
        "Swap-optimizer only support use_distributed_optimizer/use_layer_wise_distributed_optimizer",
        source="mindspeed/features_manager/optimizer",
    )
    def _swap(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--swap-optimizer")
        if setting and not {"--use-distributed-optimizer", "--use-layer-wise-distributed-optimizer"} & set(reading.source.settings):
            yield at(setting, "--use-distributed-optimizer", value=True)

    @add(f"{name}.reuse-fp32", "--reuse-fp32-param {reason}", source="mindspeed/features_manager/optimizer")
    def _reuse(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--reuse-fp32-param")
        if setting and "--bf16" not in reading.source.settings:
            yield at(setting, "--bf16", reason="only support for `bf16`", value=True)
        if setting and "--swap-optimizer" in reading.source.settings:
            yield at(setting, None, reason="excludes --swap-optimizer", value=True)

    @add(
        f"{name}.sequence-without-tensor",
        "--sequence-parallel is switched off with tensor parallelism 1",
        severity="warning",
        source="megatron/training/arguments.py validate_args",
    )
    def _sequence(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("--sequence-parallel")
        if setting and _int(reading, "--tensor-model-parallel-size", 1) == 1:
            yield at(setting, None, value=True)

    @add(f"{name}.expert-tensor", "--expert-tensor-parallel-size is not set: it is that of tensor parallelism ({tp}), so every "
                                  "expert is cut", severity="advice",
         source="megatron/training/arguments.py validate_args")
    def _etp(reading: Reading, case: Case | None) -> Iterator[Values]:
        tp = _int(reading, "--tensor-model-parallel-size", 1)
        if _int(reading, "--num-experts", 0) > 1 and tp > 1 and "--expert-tensor-parallel-size" not in reading.source.settings \
                and "--moe-tp-extend-ep" not in reading.source.settings:
            yield {"tp": tp, "value": None, "expected": 1, "path": reading.source.settings["--num-experts"].place}

    @add(f"{name}.connections", "CUDA_DEVICE_MAX_CONNECTIONS is {value}: Using tensor model parallelism or context parallelism "
                                "require setting the environment variable to 1",
         source="megatron/training/arguments.py validate_args, which runs on any device")
    def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
        wide = _int(reading, "--tensor-model-parallel-size", 1) > 1 or _int(reading, "--context-parallel-size", 1) > 1
        setting = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
        if wide and differs(setting, "1"):
            yield at(setting, "1")

    return (*checks, whole_states(name, "--use-distributed-optimizer"), *environment_checks(name, mindspore=False))


def _int(reading: Reading, flag: str, default: int) -> int:
    """The number behind a flag; the default where it is absent or odd."""
    setting: Setting | None = reading.source.settings.get(flag)
    number = whole(setting.value) if setting else None
    return default if number is None else number


def _virtual_stages(reading: Reading) -> bool:
    """Whether stages are cut into chunks."""
    return bool(
        {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"} & set(reading.source.settings)
    )
