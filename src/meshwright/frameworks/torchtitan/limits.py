"""What torchtitan refuses of a case and a layout, in its own words, for each of its releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full
from meshwright.frameworks.rules import Rule, limits, values_if, words_if
from meshwright.frameworks.torchtitan.layout_keys import ROTATIONS, SCHEDULES, every_nth, goes_compiled, shard_degree, split_of
from meshwright.frameworks.torchtitan.models import RELEASES, configurations, flavour_of, flavours, module_name

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned

OLD, NEW = ("0.2",), ("0.3", "main")
PRECISIONS = {"0.2": ("bf16", "fp8-torchao", "fp8-mx"), "0.3": ("bf16",), "main": ("bf16",)}
_LONGEST = {"llama3": 131072, "qwen3": 40960, "deepseek_v3": 16384, "gpt_oss": 131072}
"""Module -> tokens of its rotary table."""
_STAGES = {"interleaved": "at least 2 stages", "dualpipev": "exactly 2 stages"}
"""Schedule -> stages of a rank; of all others exactly 1."""
_ROUNDS = {"interleaved": "Interleaved 1F1B", "zb1p": "Zero bubble"}


def _model(plan: Planned) -> Values | None:
    module = module_name(plan.case.model)
    known = [each.name for each in flavours(plan.release).values() if each.module == module and "debug" not in each.name]
    return values_if(flavour_of(plan.case.model, plan.release) is None, module=module, known=", ".join(known) or "none")


def _task(plan: Planned) -> bool:
    flavour = flavour_of(plan.case.model, plan.release)
    return plan.task != "pretrain" and not any(
        each.task == plan.task and flavour is not None and (each.module, each.flavour) == (flavour.module, flavour.name)
        for each in configurations(plan.release).values()
    )


def _precision(plan: Planned) -> Values | None:
    known = PRECISIONS[plan.release]
    return values_if(plan.precision not in known, known=", ".join(known))


def _knobs(plan: Planned) -> Values | None:
    old, layout, recompute = plan.release in OLD, plan.layout, plan.layout.recompute
    some = isinstance(recompute, Full) and recompute.layers is not None
    odd_group = plan.shards[0] % plan.cp or plan.dp % shard_degree(layout)
    cuts = _expert_tensor(plan)
    has = [
        (plan.zero == 1, "ZeRO-1"),
        (len({*plan.shards} - {1}) > 1, "unequal shard groups"),
        (plan.zero > 1 and plan.shards[1] == 1, "gradients that are not sharded as the optimizer is"),
        (plan.zero > 0 and odd_group, f"a shard group of {plan.shards[0]}: dp_shard x cp is none"),
        (plan.zero == 0 and plan.cp > 1, "context parallelism without sharding over it"),
        (some and (not old or every_nth(plan.case, layout) is None), "recomputation of some layers"),
        (set(layout.offload) - {"optimizer"}, "offload of other than the optimizer"),
        (layout.offload and old and plan.zero == 0, "offload without FSDP"),
        (plan.cp > 1 and plan.kind not in (ROTATIONS if old else ("all-gather",)), f"{plan.kind} context parallelism"),
        (plan.schedule not in SCHEDULES, f"the schedule {plan.schedule}"),
        (old and plan.tp > 1 and not plan.sp, "tensor parallelism without sequence parallelism"),
        (plan.etp != cuts, f"etp {plan.etp}: experts are cut by {cuts}"),
    ]
    return words_if("knobs", has)


def _expert_tensor(plan: Planned) -> int:
    """Ranks that cut an expert: those of tp without expert parallelism; with it, none from 0.3 on and tp or none in 0.2."""
    if not plan.moe:
        return 1
    if plan.ep == 1:
        return plan.tp
    return plan.etp if plan.release in OLD else 1


def _expert_parallel(plan: Planned) -> Values | None:
    ranks = shard_degree(plan.layout) * plan.cp * plan.tp
    ways = plan.ep * (plan.etp if plan.ep > 1 else 1)
    return values_if(ranks % ways, ep=ways, ranks=ranks)


def _expert_width(plan: Planned) -> Values | None:
    experts = plan.case.model.experts
    return values_if(experts.expert_width % plan.etp, width=experts.expert_width) if experts is not None else None


def _key_value_heads(plan: Planned) -> Values | None:
    heads = plan.heads if plan.attention.latent else plan.groups
    return values_if(heads % plan.tp, heads=heads, head_dim=plan.attention.head_dim)


def _width(plan: Planned) -> Values | None:
    blocks = [kind.feed_forward for kind in plan.case.model.kinds]
    widths = [plan.case.model.hidden, *(int(getattr(block, "width", 0) or getattr(block, "shared_width", 0)) for block in blocks)]
    odd = next((width for width in widths if width % plan.tp), None)
    return values_if(odd is not None, width=odd)


def _sequence(plan: Planned) -> Values | None:
    parts = plan.tp * (2 * plan.cp if plan.cp > 1 else 1)
    return values_if(plan.sequence % parts, parts=parts)


def _sequence_maximum(plan: Planned) -> Values | None:
    limit = _LONGEST.get(module_name(plan.case.model), plan.sequence)
    return values_if(plan.sequence > limit, limit=limit)


def _context_attention(plan: Planned) -> bool:
    varlen = module_name(plan.case.model) == "gpt_oss" or plan.task == "sft"
    return plan.cp > 1 and varlen


def _async(plan: Planned) -> bool:
    overlapped = plan.layout.overlap.tensor and plan.tp > 1 and plan.sp
    return overlapped and not goes_compiled(plan.case, plan.layout)


def _schedule(plan: Planned) -> Values | None:
    one = plan.vp == 1
    able = {"1f1b": one, "gpipe": one, "zb1p": one, "interleaved": plan.vp > 1, "dualpipev": plan.vp == 2}
    alone = plan.pp == 1 and (plan.vp > 1 or plan.schedule != "1f1b")
    name = SCHEDULES.get(plan.layout.schedule, plan.schedule)
    broken = alone or not able.get(plan.schedule, True)
    return values_if(broken, schedule=name, stages=_STAGES.get(plan.schedule, "exactly 1 stage"))


def _split(plan: Planned) -> Values | None:
    split = split_of(plan.case, plan.layout)
    if split is None:
        return None
    told = sum(map(sum, split))
    broken = told != plan.layers or len(split) != plan.vp or any(len(row) != plan.pp for row in split)
    return values_if(broken, told=told)


def _rounds(plan: Planned) -> Values | None:
    rounds = max(1, plan.microbatches // plan.pp)
    return values_if(plan.schedule in _ROUNDS and plan.microbatches % rounds, schedule=_ROUNDS.get(plan.schedule), rounds=rounds)


_RULES = (
    Rule("model", "torchtitan {release} has no flavour of {module} that is {model}; it has {known}", _model, "never", "model"),
    Rule("task", "torchtitan {release} has no registered configuration for {task} of {model}", _task, "never", "training"),
    Rule("precision", "torchtitan {release} is written for {known} here, not for {precision}", _precision, "never", "training"),
    Rule("gradients", "mixed_precision_reduce of torchtitan {release} is float32 alone: gradients are not reduced in {gradients}",
         lambda plan: plan.gradients != "fp32", "parse", "training"),
    Rule("optimizer", "Optimizer {optimizer} not added.", lambda plan: plan.optimizer != "adamw", "start", "training"),
    Rule("knobs", "torchtitan {release} has no key for {knobs}", _knobs, "never"),
    Rule("expert-tensor-parallel", "Currently we only support ETP=TP or ETP=1",
         lambda plan: plan.ep > 1 and plan.etp not in {1, plan.tp}, "start", releases=OLD),
    Rule("expert-parallel", "expert_parallel_degree ({ep}) must divide dp_shard * cp * tp ({ranks}), which torchtitan does not "
         "check here", _expert_parallel, "never", releases=("0.2", "0.3")),
    Rule("expert-parallel", "expert_parallel_degree ({ep}) must divide dp_shard * cp * tp ({ranks}).", _expert_parallel, "start",
         releases=("main",)),
    Rule("experts", "{experts} experts are no multiple of expert_parallel_degree {ep}",
         lambda plan: plan.experts % plan.ep if plan.moe else plan.ep > 1, "start"),
    Rule("expert-width", "experts of width {width} cannot be cut by {etp}", _expert_width, "start"),
    Rule("expert-sequence", "experts with tensor parallelism need sequence parallelism",
         lambda plan: plan.moe and plan.tp > 1 and not plan.sp, "never"),
    Rule("heads", "tensor_parallel_degree ({tp}) must divide n_heads ({heads}).", lambda plan: plan.heads % plan.tp, "start"),
    Rule("key-value-heads", "shape '[1, {sequence}, -1, {head_dim}]' is invalid (tp {tp} over {heads} key-value heads)",
         _key_value_heads, "step", releases=OLD),
    Rule("key-value-heads", "tensor_parallel_degree ({tp}) must divide n_kv_heads ({heads}).", _key_value_heads, "start",
         releases=NEW),
    Rule("width", "tensor_parallel_degree ({tp}) does not divide the hidden or feed-forward width ({width})", _width, "never"),
    Rule("sequence", "Sequence length {sequence} must be divisible by the product of TP degree ({tp}) and 2 * CP degree ({cp}).",
         _sequence, "start", releases=OLD),
    Rule("sequence", "Training sequence length ({sequence}) must be divisible by {parts} for the configured sequence/context "
         "parallelism.", _sequence, "start", releases=NEW),
    Rule("sequence-maximum", "Training sequence length {sequence} exceeds attention RoPE maximum supported sequence length "
         "{limit}.", _sequence_maximum, "start", "training", releases=NEW),
    Rule("context-attention", "spmd_types + CP is not supported with ScaledDotProductAttention or VarlenAttention. Use "
         "FlexAttention + CP or disable CP.", _context_attention, "start", releases=NEW),
    Rule("tied", "Weight tying is not supported with Pipeline Parallel.",
         lambda plan: plan.case.model.tied_embeddings and plan.pp > 1, "start"),
    Rule("data-parallel", "DDP has not supported > 1D parallelism",
         lambda plan: plan.zero == 0 and plan.dp > 1 and plan.world != plan.dp, "start", releases=OLD),
    Rule("async", "Async TP requires 'model' in --compile.components and --compile.enable", _async, "start"),
    Rule("schedule", "{schedule} takes {stages} on each rank, not {vp}", _schedule, "start"),
    Rule("stages", "Configuration would result in empty stages. {places} stages for {layers} layers",
         lambda plan: values_if(plan.pp * plan.vp > plan.layers, places=plan.pp * plan.vp), "start"),
    Rule("split", "{told} layers by stage are not the {layers} layers of the model on {pp} ranks with {vp} stages each", _split,
         "never"),
    Rule("microbatches", "Number of microbatches ({microbatches}) must be greater than or equal to the number of stages "
         "({stages}).", lambda plan: values_if(plan.schedule == "1f1b" and 1 < plan.pp > plan.microbatches, stages=plan.pp),
         "step"),
    Rule("rounds", "{schedule} requires the number of microbatches to be a multiple of the number of rounds ({rounds}), but got "
         "{microbatches}.", _rounds, "start"),
    Rule("dual-pipe", "DualPipeV requires at least as many microbatches as stages, but got {microbatches} microbatches and "
         "{stages} stages.",
         lambda plan: values_if(plan.schedule == "dualpipev" and plan.microbatches < 2 * plan.pp, stages=2 * plan.pp), "start"),
    Rule("few", "{microbatches} micro-batches cannot fill {pp} stages in turns",
         lambda plan: plan.schedule == "interleaved" and plan.microbatches < plan.pp, "never"),
    Rule("cuda-graphs", "CUDA graphs support neither pipeline parallelism nor experts on several ranks: plan with graphs=none",
         lambda plan: plan.case.launch.graphs == "step" and (plan.pp > 1 or plan.ep > 1), "start", releases=NEW),
    Rule("batch", "global batch size must be multiple of local batch size times data-parallel degree ({batch} % ({mb} * {dp}) != "
         "0)", lambda plan: plan.batch != plan.mb * plan.dp * plan.microbatches, "start"),
)
LIMITS = {release: limits("torchtitan", _RULES, release=release) for release in RELEASES}
