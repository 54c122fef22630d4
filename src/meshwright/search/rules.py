"""Which layouts are legal: rules with reasons, over columns. The grid counts by the first that refuses; a layout gets all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct

from meshwright.domain.launch import chosen
from meshwright.domain.model import Mlp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import ContextKind
    from meshwright.domain.model import Model

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

Level = Literal["mesh", "microbatch", "pipeline", "sharding"]


class Knobs(Struct, frozen=True, kw_only=True):
    """The knobs that a rule may look at, numbers or columns; what its level does not know yet is 1."""

    tp: Any
    cp: Any
    pp: Any
    dp: Any
    ep: Any
    etp: Any
    mb: Any = 1
    m: Any = 1
    vp: Any = 1
    schedule: str = "1f1b"
    treatment: str = "none"
    zero: Any = 0
    shards: Any = 1
    sp: Any = 0
    context: str = "ring"
    offload: Any = 0


def knobs_of(mesh: Mapping[str, Ints], **more: Any) -> Knobs:
    """Knobs from the columns of a mesh and what else the level knows."""
    return Knobs(tp=mesh["tp"], cp=mesh["cp"], pp=mesh["pp"], dp=mesh["dp"], ep=mesh["ep"], etp=mesh["etp"], **more)


class Rule(Struct, frozen=True, kw_only=True):
    """A rule: at which level of the grid it is known, the reason it gives, and where it holds."""

    level: Level
    reason: str
    """What is wrong, in the words that ``rejected`` counts by; case figures stand in braces."""
    holds: Callable[[Case, Features, Knobs], Any]


def _heads(case: Case, _: Features, k: Knobs) -> Any:
    result = np.asarray(k.tp) > 0
    for attention in case.model.attentions:
        result = result & (attention.num_heads % k.tp == 0)
    for mixer in case.model.mixers:
        result = result & (mixer.groups % k.tp == 0)
    return result


def _key_value_heads(case: Case, _: Features, k: Knobs) -> Any:
    result = np.asarray(k.tp) > 0
    for attention in case.model.attentions:
        heads = attention.num_key_value_heads
        if attention.latent is None:
            result = result & ((heads % k.tp == 0) | (k.tp % heads == 0))
    return result


def _widths(case: Case, _: Features, k: Knobs) -> Any:
    result = np.asarray(case.model.hidden % k.tp == 0)
    for kind in case.model.kinds:
        block = kind.feed_forward
        width = block.width if isinstance(block, Mlp) else block.shared_width
        result = result & (width % k.tp == 0)
    return result


def _sequence(case: Case, _: Features, k: Knobs) -> Any:
    zigzag = np.where(k.cp > 1, 2 * k.cp, 1)
    shards = np.where(np.asarray(k.sp) > 0, k.tp, 1) * k.cp
    return (case.batch.sequence_tokens % zigzag == 0) & (case.batch.sequence_tokens % shards == 0)


def _position(case: Case, features: Features, k: Knobs) -> Any:
    return np.full(np.shape(k.tp), case.model.position in features.positions)


def context_kinds(model: Model, features: Features) -> tuple[ContextKind, ...]:
    """Kinds of context parallelism that the framework has for a model.

    Rings compute whole blocks of keys, so windows need the others; learned sinks live in one softmax, so they need Ulysses.
    """
    windowed = any(each.window_tokens for each in model.attentions)
    sinks = any(each.sinks for each in model.attentions)
    able = features.context_kinds if features.context_parallel else ()
    return tuple(kind for kind in able if not (windowed and kind in ("ring", "hybrid")) and not (sinks and kind != "ulysses"))


def ulysses_divides(model: Model, ways: Any) -> Any:
    """Whether heads divide over tp x cp ranks, as exchanging them needs."""
    result = np.asarray(ways) > 0
    for attention in model.attentions:
        keys = attention.num_heads if attention.latent else attention.num_key_value_heads
        result = result & (attention.num_heads % ways == 0) & (keys % ways == 0)
    return result


def _mixer_heads(case: Case, _: Features, k: Knobs) -> Any:
    """Linear mixers exchange heads under context parallelism, whatever attention does; groups are repeated where they are fewer."""
    result = np.asarray(k.cp) > 0
    for mixer in case.model.mixers:
        result = result & ((k.cp == 1) | (mixer.heads % (k.tp * k.cp) == 0))
    return result


def _position_table(case: Case, _: Features, k: Knobs) -> Any:
    model = case.model
    return np.full(np.shape(k.tp), model.position != "learned" or case.batch.sequence_tokens <= model.position_table)


def _context(case: Case, features: Features, k: Knobs) -> Any:
    return (k.cp == 1) | (k.context in context_kinds(case.model, features))


def inner_ranks(case: Case, tp: Any, cp: Any) -> Any:
    """Context-parallel ranks of one scale-up domain: the group that exchanges heads under the hybrid kind."""
    return np.maximum(1, np.minimum(cp, case.cluster.scale_up_devices // tp))


def _context_heads(case: Case, _: Features, k: Knobs) -> Any:
    if k.context == "ulysses":
        return (k.cp == 1) | ulysses_divides(case.model, k.tp * k.cp)
    if k.context == "hybrid":
        inner = inner_ranks(case, k.tp, k.cp)
        return (k.cp == 1) | ((inner > 1) & (inner < k.cp) & ulysses_divides(case.model, k.tp * inner))
    return k.cp > 0


def _some_experts(case: Case, _: Features, k: Knobs) -> Any:
    return case.model.is_moe | ((np.asarray(k.ep) == 1) & (np.asarray(k.etp) == 1))


def _experts(case: Case, _: Features, k: Knobs) -> Any:
    experts = case.model.experts
    return np.asarray(k.ep) > 0 if experts is None else experts.num_experts % k.ep == 0


def _expert_width(case: Case, _: Features, k: Knobs) -> Any:
    experts = case.model.experts
    return np.asarray(k.etp) > 0 if experts is None else (experts.expert_width % k.etp == 0) & (k.tp % k.etp == 0)


def _moe_sequence_parallel(case: Case, _: Features, k: Knobs) -> Any:
    return np.asarray(not case.model.is_moe) | (k.tp == 1) | (np.asarray(k.sp) > 0)


def sequence_parallel_able(case: Case, features: Features) -> bool:
    """Whether the framework has sequence parallelism."""
    return case.implementation.sequence_parallel and features.sequence_parallel


def sequence_parallel_unasked(case: Case, features: Features) -> bool:
    """Whether sequence parallelism is on with every TP; otherwise only where a pin or the user's layout says so."""
    return sequence_parallel_able(case, features) and not features.sequence_parallel_against


def _sequence_parallel(case: Case, features: Features, k: Knobs) -> Any:
    return (np.asarray(k.sp) == 0) | sequence_parallel_able(case, features)


def _precision(case: Case, _: Features, k: Knobs) -> Any:
    able = case.training.precision.runs_on(case.cluster.device)
    return np.full(np.shape(k.tp), able)


def _layers(case: Case, features: Features, k: Knobs) -> Any:
    places = k.pp * k.vp
    enough = places <= case.model.num_layers
    by_itself = case.implementation.stage_split != "even"
    return enough & (features.uneven_stages or by_itself or case.model.num_layers % places == 0)


def _interleaved_batch(_: Case, features: Features, k: Knobs) -> Any:
    if k.schedule != "interleaved":
        return np.asarray(k.m) >= 1
    multiple = np.asarray(k.m) % k.pp == 0 if features.interleaved_needs_multiple else np.asarray(k.m) >= k.pp
    return (k.m >= k.pp) & multiple


def _schedule_chunks(_: Case, features: Features, k: Knobs) -> Any:
    offered = k.schedule in features.schedules
    if k.schedule == "interleaved":
        fits = (k.vp > 1) & (k.pp > 1)
    elif k.schedule == "dualpipev":
        fits = (k.vp == 2) & (k.pp > 1) & (k.m >= 2 * k.pp)
    elif k.schedule == "1f1b":
        fits = k.vp == 1
    else:
        fits = (k.vp == 1) & (k.pp > 1)
    return fits & offered


def _shard_group(_: Case, features: Features, k: Knobs) -> Any:
    ranks = k.dp * k.cp if features.shards_over_context else k.dp
    sharded = (k.shards > 1) & (k.shards <= ranks)
    divides = ranks % np.maximum(k.shards, 1) == 0
    return np.where(np.asarray(k.zero) == 0, k.shards == 1, sharded & divides)


def _shard_stage(case: Case, features: Features, k: Knobs) -> Any:
    plain = case.training.optimizer.name in features.plain_optimizers
    return np.isin(k.zero, np.array([0] if plain else features.zero_stages))


def _partial_shards(_: Case, features: Features, k: Knobs) -> Any:
    ranks = k.dp * k.cp if features.shards_over_context else k.dp
    return features.partial_sharding | (np.asarray(k.shards) <= 1) | (k.shards == ranks)


def _instances(case: Case, features: Features, k: Knobs) -> Any:
    if not features.instances_divide_experts or not case.model.is_moe:
        return np.asarray(k.tp) > 0
    ranks = k.dp * k.cp if features.shards_over_context else k.dp
    groups = np.where(np.asarray(k.shards) > 1, ranks // np.maximum(k.shards, 1), 1)
    replicas = np.maximum(1, k.tp * k.cp * k.dp // (k.ep * k.etp))
    return replicas % np.maximum(groups, 1) == 0


def _shards_under_pipeline(_: Case, features: Features, k: Knobs) -> Any:
    return (np.asarray(k.zero) < 2) | (k.pp == 1) | features.parameter_shards_with_pipeline


def _sequence_with_tensor(_: Case, features: Features, k: Knobs) -> Any:
    return np.asarray(not features.sequence_parallel_with_tensor) | (k.tp == 1) | (np.asarray(k.sp) > 0)


def _mixture(case: Case, features: Features, k: Knobs) -> Any:
    return np.full(np.shape(k.tp), features.mixture_of_experts or not case.model.is_moe)


def _recompute(_: Case, features: Features, k: Knobs) -> Any:
    several = features.recompute_mixed or features.recompute_mixed_first
    able = several if k.treatment == "mixed" else k.treatment in features.recompute
    return np.full(np.shape(k.tp), able)


def _offload(_: Case, features: Features, k: Knobs) -> Any:
    stages = features.offload_zero_stages if features.optimizer_offload else ()
    return (np.asarray(k.offload) == 0) | np.isin(k.zero, np.array(stages))


def _activations(case: Case, features: Features, k: Knobs) -> Any:
    return np.full(np.shape(k.tp), set(chosen(case.launch)) <= set(features.offloads))


def _whole_layers(case: Case, _: Features, k: Knobs) -> Any:
    return (np.asarray(k.pp) == 1) | (not case.launch.offloaded_layers)


def _kept_layers(case: Case, _: Features, k: Knobs) -> Any:
    return np.full(np.shape(k.tp), k.treatment == "none" or not case.launch.offloaded_layers)


def _some_layers(case: Case, _: Features, k: Knobs) -> Any:
    return np.full(np.shape(k.tp), case.launch.offloaded_layers < case.model.num_layers)


RULES: tuple[Rule, ...] = (
    Rule(level="mesh", reason="the device does not compute in the data types of the precision recipe", holds=_precision),
    Rule(level="mesh", reason="the framework has no kernels for the model's position encoding", holds=_position),
    Rule(level="mesh", reason="the sequence exceeds the learned position table", holds=_position_table),
    Rule(level="mesh", reason="the framework has no mixture of experts", holds=_mixture),
    Rule(level="mesh", reason="tp does not divide the attention heads", holds=_heads),
    Rule(level="mesh", reason="tp and the key-value heads do not divide each other", holds=_key_value_heads),
    Rule(level="mesh", reason="tp does not divide the hidden or feed-forward width", holds=_widths),
    Rule(
        level="mesh", reason="cp (twice, zigzag), or tp x cp with sequence parallelism, does not divide the sequence",
        holds=_sequence,
    ),
    Rule(level="mesh", reason="the framework has no context parallelism for this model", holds=_context),
    Rule(
        level="mesh", reason="tp x cp does not divide the heads, which Ulysses and hybrid context parallelism cut",
        holds=_context_heads,
    ),
    Rule(
        level="mesh", reason="tp x cp does not divide the heads of the linear layers, which context parallelism cuts",
        holds=_mixer_heads,
    ),
    Rule(level="mesh", reason="the framework has no tensor parallelism", holds=lambda _, f, k: (k.tp == 1) | f.tensor_parallel),
    Rule(level="mesh", reason="the framework has no pipeline parallelism", holds=lambda _, f, k: (k.pp == 1) | f.pipeline_parallel),
    Rule(level="mesh", reason="the model has no experts to divide", holds=_some_experts),
    Rule(level="mesh", reason="ep does not divide the experts", holds=_experts),
    Rule(level="mesh", reason="the framework has no expert parallelism", holds=lambda _, f, k: (k.ep == 1) | f.expert_parallel),
    Rule(level="mesh", reason="etp does not divide tp or the expert width", holds=_expert_width),
    Rule(
        level="mesh", reason="the framework has no expert tensor parallelism",
        holds=lambda _, f, k: (k.etp == 1) | f.expert_tensor_parallel
    ),
    Rule(level="mesh", reason="experts with tp need sequence parallelism", holds=_moe_sequence_parallel),
    Rule(level="mesh", reason="the framework has no sequence parallelism", holds=_sequence_parallel),
    Rule(level="mesh", reason="the framework has tensor parallelism with sequence parallelism only", holds=_sequence_with_tensor),
    Rule(level="mesh", reason="the framework cannot keep activations as the launch says", holds=_activations),
    Rule(level="mesh", reason="every layer would be offloaded", holds=_some_layers),
    Rule(level="mesh", reason="layers are offloaded without pipeline parallelism only", holds=_whole_layers),
    Rule(level="mesh", reason="pp exceeds the layers", holds=lambda c, _, k: k.pp <= c.model.num_layers),
    Rule(
        level="mesh", reason="dp does not divide the global batch",
        holds=lambda c, _, k: c.batch.global_batch_sequences % k.dp == 0,
    ),
    Rule(
        level="microbatch", reason="dp x mb does not divide the global batch",
        holds=lambda c, _, k: c.batch.global_batch_sequences % (k.dp * k.mb) == 0,
    ),
    Rule(level="pipeline", reason="the schedule does not run with these stages and chunks", holds=_schedule_chunks),
    Rule(level="pipeline", reason="the layers do not split over pp x vp", holds=_layers),
    Rule(level="pipeline", reason="interleaving needs micro-batches in multiples of pp", holds=_interleaved_batch),
    Rule(
        level="pipeline", reason="the framework refuses fewer micro-batches than pp - 1",
        holds=lambda _, f, k: (np.asarray(k.m) >= k.pp - 1) | (k.schedule != "1f1b") | (not f.fills_pipeline),
    ),
    Rule(level="pipeline", reason="the framework has no such recompute", holds=_recompute),
    Rule(level="pipeline", reason="layers are offloaded where nothing is recomputed only", holds=_kept_layers),
    Rule(level="sharding", reason="the framework has no such ZeRO stage", holds=_shard_stage),
    Rule(level="sharding", reason="the shard group is one rank, all ranks again, or no divisor of them", holds=_shard_group),
    Rule(level="sharding", reason="the framework shards over all ranks only", holds=_partial_shards),
    Rule(level="sharding", reason="the number of shard groups does not divide the experts' replicas", holds=_instances),
    Rule(level="sharding", reason="gradients and parameters are not sharded under a pipeline", holds=_shards_under_pipeline),
    Rule(level="sharding", reason="the framework keeps no optimizer states in host memory under this ZeRO stage", holds=_offload),
)


def rules_of(level: Level) -> tuple[Rule, ...]:
    """The rules of one level, in the order in which they count."""
    return tuple(rule for rule in RULES if rule.level == level)


def refusals(case: Case, features: Features, knobs: Knobs, *, level: Level | None = None) -> tuple[str, ...]:
    """Every reason why one layout is refused, of all levels or of one; empty where it is legal."""
    asked = RULES if level is None else rules_of(level)
    return tuple(rule.reason for rule in asked if not _everywhere(rule.holds(case, features, knobs)))


def _everywhere(holds: bool | np.bool_ | Bools) -> bool:
    """Whether a rule holds for all that it was asked about; of numbers it says one word."""
    return bool(holds.all()) if isinstance(holds, np.ndarray) else bool(holds)
