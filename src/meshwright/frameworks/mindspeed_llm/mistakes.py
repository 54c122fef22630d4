"""What MindSpeed-LLM takes although it is wrong, what contradicts itself, and what its launch lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_mistakes
from meshwright.frameworks.ascend.habits import whole_states
from meshwright.frameworks.asking import at, differs, equal, whole
from meshwright.frameworks.mindspeed_llm.layouts import parse_counts, parse_layout_text, parse_rank_lists
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

LISTS = ("--num-layer-list", "--pipeline-num-transformer-layers", "--pipeline-model-parallel-layout", "--noop-layers")
_TP, _PP = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
_CHUNKS = ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank")
_EXCLUSIVE = ((LISTS[1], LISTS[3]), (LISTS[1], LISTS[0]), (LISTS[2], LISTS[3]), (LISTS[2], LISTS[1]))
_UNFOLDED = {
    "--overlap-grad-reduce": "overlap_grad_reduce", "--swap-attention": "swap_attention", "--tp-2d": "tp_2d",
    "--num-layers-per-virtual-pipeline-stage": "virtual_pipeline", "--use-custom-fsdp": "use_custom_fsdp",
    "--pipeline-model-parallel-layout": "pipeline-model-parallel-layout",
}
"""Flag that excludes the folded pipeline -> how the framework calls it."""


def unknown_flag(key: str) -> tuple[Severity, str] | None:
    """argparse stops."""
    return (
        ("error", "unrecognized arguments: {key}")
        if key.startswith("-")
        else ("warning", "{key} is no flag, and argparse stops at it")
    )


def _int(reading: Reading, flag: str, default: int) -> int:
    """The number behind a flag; the default where it is absent or odd."""
    setting: Setting | None = reading.source.settings.get(flag)
    number = whole(setting.value) if setting else None
    return default if number is None else number


def _stages(reading: Reading) -> int:
    return _int(reading, _PP, 1)


def _length(reading: Reading) -> Values | None:
    counts = parse_counts(str(reading.source.value(LISTS[0])))
    return values_if(counts and len(counts) != _stages(reading), value=len(counts or ()), expected=_stages(reading))


def _sum(reading: Reading, case: Case | None) -> Iterator[Values]:
    layers, stages = _int(reading, "--num-layers", 0), _stages(reading)
    for key in LISTS[:3]:
        setting = reading.source.settings.get(key)
        if setting is None or not isinstance(setting.value, str):
            continue
        counts = parse_counts(setting.value)
        split = ((counts,) if counts else None) if key == LISTS[0] else parse_rank_lists(setting.value) if key == LISTS[1] \
            else parse_layout_text(setting.value, stages)
        total = sum(map(sum, split)) if split else layers
        if layers and total != layers:
            fate = "a smaller model is trained silently" if total < layers else "it stops"
            yield at(setting, layers, key=key, total=total, layers=layers, fate=fate, value=total)


def _range(reading: Reading) -> Values | None:
    ids, layers = parse_counts(str(reading.source.value(LISTS[3]))), _int(reading, "--num-layers", 0)
    return values_if(ids and layers and max(ids) >= layers, layers=layers, value=max(ids or (0,)), expected=layers - 1)


def _one_stage(reading: Reading) -> bool:
    return _stages(reading) <= 1


def _is_folded(reading: Reading) -> bool:
    return reading.source.value("--schedules-method") == "dualpipev"


def _several_layers(reading: Reading) -> bool:
    return _int(reading, "--num-layers-per-virtual-pipeline-stage", 1) > 1


def _one_tensor_rank(reading: Reading) -> bool:
    return _int(reading, _TP, 1) == 1


def _cut_experts(reading: Reading) -> Values | None:
    tp = _int(reading, _TP, 1)
    return values_if(_int(reading, "--num-experts", 0) > 1 and tp > 1, tp=tp)


def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    wide = _int(reading, _TP, 1) > 1 or _int(reading, "--context-parallel-size", 1) > 1
    setting = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if wide and differs(setting, "1"):
        yield at(setting, "1")


_LISTS_SOURCE = "mindspeed_llm/features_manager/pipeline_parallel/num_layer_list.py"
_OPTIMIZER, _RECOMPUTE = "mindspeed/features_manager/optimizer", "mindspeed/features_manager/recompute"
_BUBBLE, _ADVANCE, _REUSE = "--recompute-in-bubble", "--recompute-in-advance", "--reuse-fp32-param"
_MISTAKES = (
    Mistake("list-with-noops", "num layer list would be disabled when noop-layer is activated.",
            At(LISTS[0], "one of --num-layer-list and --noop-layers", beside=("--noop-layers",)), source=_LISTS_SOURCE),
    Mistake("list-length", "len(args.num_layer_list) != args.pipeline_model_parallel_size", At(LISTS[0], when=_length),
            source=_LISTS_SOURCE),
    Mistake("list-pipeline", "Dynamic pipeline model should work with pipeline parallel.", At(LISTS[0], when=_one_stage),
            source=_LISTS_SOURCE),
    Mistake("list-virtual", "Dynamic pipeline model and {other} cannot be enabled at the same time.",
            (At(LISTS[0], beside=("--num-layers-per-virtual-pipeline-stage",), values={"other": "virtual pipeline"}),
             At(LISTS[0], beside=("--schedules-method",), values={"other": "dualpipev"})), source=_LISTS_SOURCE),
    Mistake("layer-sum", "{key} has {total} layers, --num-layers {layers}: {fate}", _sum,
            source="mindspeed/features_manager/pipeline_parallel/unaligned_pineline_feature.py refuses more layers only; "
                "num_layer_list.py compares nothing"),
    Mistake("list-exclusive", "{one} and {other} exclude each other",
            tuple(At(one, beside=(other,), values={"one": one, "other": other}) for one, other in _EXCLUSIVE),
            source="mindspeed/features_manager/pipeline_parallel/: incompatible_check"),
    Mistake("noop-range", "each element in args.noop_layers must be smaller than args.num_layers ({layers}): {value}",
            At(LISTS[3], when=_range), source="mindspeed: noop_layers feature"),
    Mistake("dualpipev", "The dualpipev and {other} are incompatible.",
            tuple(At(flag, when=_is_folded, values={"other": other, "value": flag}) for flag, other in _UNFOLDED.items()),
            source="mindspeed/features_manager/pipeline_parallel/dualpipev_feature.py"),
    Mistake("recompute-in-bubble", "{reason}",
            (At(_BUBBLE, without=_CHUNKS,
                values={"reason": "recompute_in_bubble only support pipelining with interleaving", "value": True}),
             At(_BUBBLE, when=lambda reading: _int(reading, "--recompute-num-layers", 0),
                values={"reason": "recompute_num_layers must be None or 0 when using recompute_in_bubble", "value": True}),
             At(_BUBBLE, beside=("--swap-attention",),
                values={"reason": "recompute-in-bubble dont support swap-attention", "value": True})), source=_RECOMPUTE),
    Mistake("recompute-in-advance", "--recompute-in-advance has no effect {reason}",
            (At(_ADVANCE, without=_CHUNKS, values={"reason": "without interleaving", "value": True}),
             At(_ADVANCE, beside=_CHUNKS[:1], when=_several_layers,
                values={"reason": "with more than one layer per chunk", "value": True})), "warning",
            f"{_RECOMPUTE}; needs one layer per chunk"),
    Mistake("full-method", 'Using recompute_granularity: full so recompute_method must be "block" or "uniform"',
            At("--recompute-granularity", "--recompute-method block|uniform", equal("full"),
               without=("--recompute-method", _BUBBLE)), source="megatron/core/transformer/transformer_config.py"),
    Mistake("selective-method", "recompute method is not yet supported for selective recomputing granularity",
            At("--recompute-method", beside={"--recompute-granularity": equal("selective")}),
            source="megatron/training/arguments.py"),
    Mistake("swap-optimizer", "Swap-optimizer only support use_distributed_optimizer/use_layer_wise_distributed_optimizer",
            At("--swap-optimizer", "--use-distributed-optimizer",
               without=("--use-distributed-optimizer", "--use-layer-wise-distributed-optimizer"), values={"value": True}),
            source=_OPTIMIZER),
    Mistake("overlap-optimizer", "--overlap-param-gather only supported with distributed optimizer",
            At("--overlap-param-gather", "--use-distributed-optimizer", without=("--use-distributed-optimizer",),
               values={"value": True}), source="megatron/training/arguments.py validate_args"),
    Mistake("reuse-fp32", "--reuse-fp32-param {reason}",
            (At(_REUSE, "--bf16", without=("--bf16",), values={"reason": "only support for `bf16`", "value": True}),
             At(_REUSE, beside=("--swap-optimizer",), values={"reason": "excludes --swap-optimizer", "value": True})),
            source=_OPTIMIZER),
    Mistake("sequence-without-tensor", "--sequence-parallel is switched off with tensor parallelism 1",
            At("--sequence-parallel", when=_one_tensor_rank, values={"value": True}), "warning", "megatron/training/arguments.py "
            "validate_args"),
    Mistake("expert-tensor", "--expert-tensor-parallel-size is not set: it is that of tensor parallelism ({tp}), so every expert "
            "is cut",
            At("--num-experts", 1, without=("--expert-tensor-parallel-size", "--moe-tp-extend-ep"), when=_cut_experts,
               values={"value": None}), "advice", "megatron/training/arguments.py validate_args"),
    Mistake("connections", "CUDA_DEVICE_MAX_CONNECTIONS is {value}: Using tensor model parallelism or context parallelism require "
            "setting the environment variable to 1", _connections,
            source="megatron/training/arguments.py validate_args, which runs on any device"),
    whole_states("--use-distributed-optimizer"),
    *environment_mistakes(mindspore=False),
)


def flag_checks(name: str) -> tuple[Check, ...]:
    """Checks of launch scripts, with identifiers of one framework."""
    return checks(name, _MISTAKES)
