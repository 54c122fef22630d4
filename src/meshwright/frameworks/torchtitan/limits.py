"""What torchtitan refuses of a case and a layout, in its own words, for each of its releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from meshwright.domain.layout import Full
from meshwright.frameworks.rules import attention_of, rule, values_if, words_if
from meshwright.frameworks.torchtitan.layout_keys import ROTATIONS, SCHEDULES, every_nth, shard_degree, split_of
from meshwright.frameworks.torchtitan.models import RELEASES, configurations, flavour_of, flavours, module_name

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Noticed, Values

Predicate: TypeAlias = "Callable[[Case, Layout, str], Values | None]"
LIMITS: dict[str, list[Limit]] = {release: [] for release in RELEASES}
OLD, NEW = ("0.2",), ("0.3", "main")
PRECISIONS = {"0.2": ("bf16", "fp8-torchao", "fp8-mx"), "0.3": ("bf16",), "main": ("bf16",)}


def _rule(
    name: str, words: str, *, releases: tuple[str, ...] = RELEASES, noticed: Noticed = "start", path: str = "layout"
) -> Callable[[Predicate], Predicate]:
    """A decorator that adds a limit to some releases; the function takes the release as well."""

    def add(broken: Predicate) -> Predicate:
        for release in releases:

            def at(case: Case, layout: Layout, release: str = release) -> Values | None:
                return broken(case, layout, release)

            rule(LIMITS[release], f"torchtitan.{name}", words, noticed=noticed, path=path)(at)
        return broken

    return add


@_rule("model", "torchtitan {release} has no flavour of {module} that is {model}; it has {known}", noticed="never", path="model")
def _model(case: Case, layout: Layout, release: str) -> Values | None:
    module = module_name(case.model)
    known = [each.name for each in flavours(release).values() if each.module == module and "debug" not in each.name]
    return values_if(
        flavour_of(case.model, release) is None,
        release=release,
        module=module,
        model=case.model.name,
        known=", ".join(known) or "none",
    )


@_rule("task", "torchtitan {release} has no registered configuration for {task} of {model}", noticed="never", path="training")
def _task(case: Case, layout: Layout, release: str) -> Values | None:
    task, flavour = case.training.task, flavour_of(case.model, release)
    able = task == "pretrain" or any(
        each.task == task and flavour is not None and (each.module, each.flavour) == (flavour.module, flavour.name)
        for each in configurations(release).values()
    )
    return values_if(not able, release=release, task=task, model=case.model.name)


@_rule("precision", "torchtitan {release} is written for {known} here, not for {precision}", noticed="never", path="training")
def _precision(case: Case, layout: Layout, release: str) -> Values | None:
    name = case.training.precision.name
    return values_if(name not in PRECISIONS[release], release=release, known=", ".join(PRECISIONS[release]), precision=name)


@_rule("optimizer", "Optimizer {optimizer} not added.", path="training")
def _optimizer(case: Case, layout: Layout, release: str) -> Values | None:
    return values_if(case.training.optimizer.name != "adamw", optimizer=case.training.optimizer.name)


@_rule("knobs", "torchtitan {release} has no key for {knobs}", noticed="never")
def _knobs(case: Case, layout: Layout, release: str) -> Values | None:
    shards, recompute = layout.optimizer_shards, layout.recompute
    some = isinstance(recompute, Full) and recompute.layers is not None
    has = [
        (layout.zero_stage == 1, "ZeRO-1"),
        (len({shards, layout.gradient_shards, layout.parameter_shards} - {1}) > 1, "unequal shard groups"),
        (layout.zero_stage > 1 and layout.gradient_shards == 1, "gradients that are not sharded as the optimizer is"),
        (layout.zero_stage > 0 and _odd_group(layout), f"a shard group of {shards}: dp_shard x cp is none"),
        (layout.zero_stage == 0 and layout.context_parallel > 1, "context parallelism without sharding over it"),
        (some and (release != "0.2" or every_nth(case, layout) is None), "recomputation of some layers"),
        (bool(set(layout.offload) - {"optimizer"}), "offload of other than the optimizer"),
        (bool(layout.offload) and release == "0.2" and layout.zero_stage == 0, "offload without FSDP"),
        (layout.context_parallel > 1 and layout.context_kind not in (ROTATIONS if release == "0.2" else ("all-gather",)),
         f"{layout.context_kind} context parallelism"),
        (layout.schedule not in SCHEDULES, f"the schedule {layout.schedule}"),
        (release == "0.2" and layout.tensor_parallel > 1 and not layout.sequence_parallel, "tensor parallelism without "
            "sequence parallelism"),
        (layout.expert_tensor_parallel != _expert_tensor(case, layout, release),
         f"etp {layout.expert_tensor_parallel}: experts are cut by {_expert_tensor(case, layout, release)}"),
    ]
    return words_if("knobs", has, release=release)


def _odd_group(layout: Layout) -> bool:
    """Whether a shard group is no dp_shard x cp with dp_shard dividing dp."""
    return bool(layout.optimizer_shards % layout.context_parallel) or bool(layout.data_parallel % shard_degree(layout))


def _expert_tensor(case: Case, layout: Layout, release: str) -> int:
    """Ranks that cut an expert: those of tp without expert parallelism; with it, none from 0.3 on and tp or none in 0.2."""
    if not case.model.is_moe:
        return 1
    if layout.expert_parallel == 1:
        return layout.tensor_parallel
    return layout.expert_tensor_parallel if release == "0.2" else 1


@_rule("expert-tensor-parallel", "Currently we only support ETP=TP or ETP=1", releases=OLD)
def _expert_tensor_parallel(case: Case, layout: Layout, release: str) -> Values | None:
    return values_if(layout.expert_parallel > 1 and layout.expert_tensor_parallel not in {1, layout.tensor_parallel})


def _expert_parallel(case: Case, layout: Layout, release: str) -> Values | None:
    ranks = shard_degree(layout) * layout.context_parallel * layout.tensor_parallel
    ways = layout.expert_parallel * (layout.expert_tensor_parallel if layout.expert_parallel > 1 else 1)
    return values_if(ranks % ways, ep=ways, ranks=ranks)


_rule("expert-parallel", "expert_parallel_degree ({ep}) must divide dp_shard * cp * tp ({ranks}), which torchtitan does not "
       "check here",
      releases=("0.2", "0.3"), noticed="never")(_expert_parallel)
_rule("expert-parallel", "expert_parallel_degree ({ep}) must divide dp_shard * cp * tp ({ranks}).", releases=("main",))(
    _expert_parallel
)


@_rule("experts", "{experts} experts are no multiple of expert_parallel_degree {ep}")
def _experts(case: Case, layout: Layout, release: str) -> Values | None:
    experts, ep = case.model.experts, layout.expert_parallel
    if experts is None:
        return values_if(ep > 1, experts=0, ep=ep)
    return values_if(experts.num_experts % ep, experts=experts.num_experts, ep=ep)


@_rule("expert-width", "experts of width {width} cannot be cut by {etp}")
def _expert_width(case: Case, layout: Layout, release: str) -> Values | None:
    experts, etp = case.model.experts, layout.expert_tensor_parallel
    return values_if(experts is not None and experts.expert_width % etp, width=experts.expert_width if experts else 0, etp=etp)


@_rule("expert-sequence", "experts with tensor parallelism need sequence parallelism", noticed="never")
def _expert_sequence(case: Case, layout: Layout, release: str) -> Values | None:
    return values_if(case.model.is_moe and layout.tensor_parallel > 1 and not layout.sequence_parallel)


@_rule("heads", "tensor_parallel_degree ({tp}) must divide n_heads ({heads}).")
def _heads(case: Case, layout: Layout, release: str) -> Values | None:
    heads, tp = attention_of(case).num_heads, layout.tensor_parallel
    return values_if(heads % tp, heads=heads, tp=tp)


@_rule("key-value-heads", "tensor_parallel_degree ({tp}) must divide n_kv_heads ({heads}).", releases=NEW)
@_rule(
    "key-value-heads",
    "shape '[1, {sequence}, -1, {head_dim}]' is invalid (tp {tp} over {heads} key-value heads)",
    releases=OLD,
    noticed="step",
)
def _key_value_heads(case: Case, layout: Layout, release: str) -> Values | None:
    attention, tp = attention_of(case), layout.tensor_parallel
    heads = attention.num_heads if attention.latent else attention.num_key_value_heads
    return values_if(heads % tp, heads=heads, tp=tp, sequence=case.batch.sequence_tokens, head_dim=attention.head_dim)


@_rule("width", "tensor_parallel_degree ({tp}) does not divide the hidden or feed-forward width ({width})", noticed="never")
def _width(case: Case, layout: Layout, release: str) -> Values | None:
    tp = layout.tensor_parallel
    blocks = [kind.feed_forward for kind in case.model.kinds]
    widths = [case.model.hidden, *(int(getattr(block, "width", 0) or getattr(block, "shared_width", 0)) for block in blocks)]
    odd = next((width for width in widths if width % tp), None)
    return values_if(odd is not None, tp=tp, width=odd)


@_rule(
    "sequence",
    "Sequence length {sequence} must be divisible by the product of TP degree ({tp}) and 2 * CP degree ({cp}).",
    releases=OLD,
)
@_rule("sequence", "Training sequence length ({sequence}) must be divisible by {parts} for the configured sequence/context "
       "parallelism.",
       releases=NEW)
def _sequence(case: Case, layout: Layout, release: str) -> Values | None:
    tp, cp, sequence = layout.tensor_parallel, layout.context_parallel, case.batch.sequence_tokens
    parts = tp * (2 * cp if cp > 1 else 1)
    return values_if(sequence % parts, sequence=sequence, tp=tp, cp=cp, parts=parts)


@_rule(
    "sequence-maximum",
    "Training sequence length {sequence} exceeds attention RoPE maximum supported sequence length {limit}.",
    releases=NEW,
)
def _sequence_maximum(case: Case, layout: Layout, release: str) -> Values | None:
    limits = {"llama3": 131072, "qwen3": 40960, "deepseek_v3": 16384, "gpt_oss": 131072}
    limit = limits.get(module_name(case.model), case.batch.sequence_tokens)
    return values_if(case.batch.sequence_tokens > limit, sequence=case.batch.sequence_tokens, limit=limit)


@_rule("context-attention", "spmd_types + CP is not supported with ScaledDotProductAttention or VarlenAttention. Use "
       "FlexAttention + CP or disable CP.",
       releases=NEW)
def _context_attention(case: Case, layout: Layout, release: str) -> Values | None:
    varlen = module_name(case.model) == "gpt_oss" or case.training.task == "sft"
    return values_if(layout.context_parallel > 1 and varlen)


@_rule("tied", "Weight tying is not supported with Pipeline Parallel.")
def _tied(case: Case, layout: Layout, release: str) -> Values | None:
    return values_if(case.model.tied_embeddings and layout.pipeline_parallel > 1)


@_rule("data-parallel", "DDP has not supported > 1D parallelism", releases=OLD)
def _data_parallel(case: Case, layout: Layout, release: str) -> Values | None:
    plain = layout.zero_stage == 0 and layout.data_parallel > 1
    return values_if(plain and layout.world != layout.data_parallel)


@_rule("async", "Async TP requires 'model' in --compile.components and --compile.enable")
def _async(case: Case, layout: Layout, release: str) -> Values | None:
    overlapped = layout.overlap.tensor and layout.tensor_parallel > 1 and layout.sequence_parallel
    return values_if(overlapped and case.implementation.name == "torchtitan-eager")


@_rule("schedule", "{schedule} takes {stages} on each rank, not {vp}")
def _schedule(case: Case, layout: Layout, release: str) -> Values | None:
    vp = layout.virtual_stages
    able = {"1f1b": vp == 1, "gpipe": vp == 1, "zb1p": vp == 1, "interleaved": vp > 1, "dualpipev": vp == 2}.get(
        layout.schedule, True
    )
    stages = {"interleaved": "at least 2 stages", "dualpipev": "exactly 2 stages"}.get(layout.schedule, "exactly 1 stage")
    alone = layout.pipeline_parallel == 1 and (vp > 1 or layout.schedule != "1f1b")
    return values_if(not able or alone, schedule=SCHEDULES.get(layout.schedule, layout.schedule), stages=stages, vp=vp)


@_rule("stages", "Configuration would result in empty stages. {places} stages for {layers} layers")
def _stages(case: Case, layout: Layout, release: str) -> Values | None:
    places, layers = layout.pipeline_parallel * layout.virtual_stages, case.model.num_layers
    return values_if(places > layers, places=places, layers=layers)


@_rule(
    "split", "{told} layers by stage are not the {layers} layers of the model on {pp} ranks with {vp} stages each", noticed="never"
)
def _split(case: Case, layout: Layout, release: str) -> Values | None:
    pp, vp, split = layout.pipeline_parallel, layout.virtual_stages, split_of(case, layout)
    if split is None:
        return None
    told = sum(map(sum, split))
    broken = told != case.model.num_layers or len(split) != vp or any(len(row) != pp for row in split)
    return values_if(broken, told=told, layers=case.model.num_layers, pp=pp, vp=vp)


@_rule(
    "microbatches",
    "Number of microbatches ({microbatches}) must be greater than or equal to the number of stages ({stages}).",
    noticed="step",
)
def _microbatches(case: Case, layout: Layout, release: str) -> Values | None:
    many, pp = layout.num_microbatches, layout.pipeline_parallel
    return values_if(layout.schedule == "1f1b" and pp > 1 and many < pp, microbatches=many, stages=pp)


@_rule(
    "rounds",
    "{schedule} requires the number of microbatches to be a multiple of the number of rounds ({rounds}), but got {microbatches}.",
)
def _rounds(case: Case, layout: Layout, release: str) -> Values | None:
    many, rounds = layout.num_microbatches, max(1, layout.num_microbatches // layout.pipeline_parallel)
    words = {"interleaved": "Interleaved 1F1B", "zb1p": "Zero bubble"}
    return values_if(
        layout.schedule in words and many % rounds, schedule=words.get(layout.schedule), rounds=rounds, microbatches=many
    )


@_rule(
    "dual-pipe",
    "DualPipeV requires at least as many microbatches as stages, but got {microbatches} microbatches and {stages} stages.",
)
def _dual_pipe(case: Case, layout: Layout, release: str) -> Values | None:
    many, stages = layout.num_microbatches, 2 * layout.pipeline_parallel
    return values_if(layout.schedule == "dualpipev" and many < stages, microbatches=many, stages=stages)


@_rule("few", "{microbatches} micro-batches cannot fill {pp} stages in turns", noticed="never")
def _few(case: Case, layout: Layout, release: str) -> Values | None:
    many, pp = layout.num_microbatches, layout.pipeline_parallel
    return values_if(layout.schedule == "interleaved" and many < pp, microbatches=many, pp=pp)


@_rule("batch", "global batch size must be multiple of local batch size times data-parallel degree ({batch} % ({mb} * {dp}) != 0)")
def _batch(case: Case, layout: Layout, release: str) -> Values | None:
    batch, mb, dp = case.batch.global_batch_sequences, layout.microbatch_sequences, layout.data_parallel
    return values_if(batch != mb * dp * layout.num_microbatches, batch=batch, mb=mb, dp=dp)
