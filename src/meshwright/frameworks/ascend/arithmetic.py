"""Limits that the frameworks on Ascend share: what is cut must divide, lists by stage must fit, and knobs must have keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.estimate.split import treatments_of
from meshwright.frameworks import divisibility
from meshwright.frameworks.ascend.recompute_lists import Parts, excess, parts_of, recomputed_modules, unsayable
from meshwright.frameworks.ascend.stages import counts_of, shape_of, split_of
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
    from meshwright.frameworks.rules import Words


def inner_ranks(case: Case, layout: Layout) -> int:
    """Context-parallel ranks that exchange heads under the hybrid kind: those of one scale-up domain."""
    return max(1, min(layout.context_parallel, case.cluster.scale_up_devices // layout.tensor_parallel))


def _context_hybrid(plan: Planned) -> Values | None:
    if plan.cp == 1 or plan.kind != "hybrid":
        return None
    inner = inner_ranks(plan.case, plan.layout)
    return None if 1 < inner < plan.cp else {"inner": inner, "cp": plan.cp}


def _context_heads(plan: Planned) -> Values | None:
    if plan.cp == 1 or plan.kind not in {"ulysses", "hybrid"} or _context_hybrid(plan):
        return None
    inner = plan.cp if plan.kind == "ulysses" else inner_ranks(plan.case, plan.layout)
    ways = plan.tp * inner
    for attention in plan.case.model.attentions:
        keys = attention.num_heads if attention.latent else attention.num_key_value_heads
        if attention.num_heads % ways or keys % ways:
            return {"heads": min(attention.num_heads, keys), "ways": ways}
    return None


def _world(plan: Planned) -> Values | None:
    devices = plan.case.cluster.num_devices
    return values_if(plan.world != devices, product=plan.world, devices=devices)


def _layers(plan: Planned) -> Values | None:
    places = plan.pp * plan.vp
    return values_if(plan.layers < places, vpp=plan.vp, places=places)


def _stages(plan: Planned) -> Values | None:
    split, wanted = plan.layout.stage_layers, (plan.vp, plan.pp)
    if split is None:
        return None
    shape = shape_of(split)
    return values_if(shape != wanted, shape=_tuple(shape, plan.layout), layout=_tuple(wanted, plan.layout))


def _tuple(shape: tuple[int, int] | None, layout: Layout) -> str:
    """A shape as NumPy prints it."""
    if shape is None:
        return "(ragged)"
    return str(shape) if layout.virtual_stages > 1 else f"({shape[1]},)"


def _stage_sum(plan: Planned) -> Values | None:
    split = plan.layout.stage_layers
    total = sum(map(sum, split)) if split else plan.layers
    return values_if(total != plan.layers, total=total, split=split)


def _recompute_shape(plan: Planned) -> Values | None:
    wanted = (plan.vp, plan.pp)
    shapes = [shape for _, counts in _listed(plan.layout) if (shape := shape_of(counts)) != wanted]
    return {"shape": _tuple(shapes[0], plan.layout), "layout": _tuple(wanted, plan.layout)} if shapes else None


def _listed(layout: Layout) -> Parts:
    """Treatments that a layout counts by stage."""
    counted = isinstance(layout.recompute, Mixed) or _counted(layout)
    return parts_of(layout.recompute, ()) if counted else ()


def recompute_excess(plan: Planned) -> Values | None:
    """No chunk recomputes more layers than it has: values ``full`` (layers recomputed in full), ``part`` (in part) and ``layers``
    of the first that does."""
    split, parts = split_of(plan.case, plan.layout), _listed(plan.layout)
    if not parts or _recompute_shape(plan) or shape_of(split) != (plan.vp, plan.pp):
        return None
    place = excess(parts, split)
    if place is None:
        return None
    chunk, stage, total = place
    full = counts_of(plan.layout.recompute, split)[chunk][stage]
    return {"full": full, "part": total - full, "layers": split[chunk][stage]}


CROSSING = ("chunk {chunk} of stage {stage} has layers that select_recompute alone and layers that select_comm_recompute alone is "
            "for: both lists begin at the same layer")


def recompute_crossing(plan: Planned) -> Values | None:
    """Lists that begin at the same layer say every chunk: values ``stage`` and ``chunk`` of the first that they do not."""
    recompute = plan.layout.recompute
    if not isinstance(recompute, Mixed) or _recompute_shape(plan):
        return None
    place = unsayable(recompute.parts, split_of(plan.case, plan.layout))
    return None if place is None else {"chunk": place[0], "stage": place[1]}


def _schedule(plan: Planned) -> Values | None:
    fits = {
        "interleaved": plan.vp > 1 and plan.pp > 1,
        "1f1b": plan.vp == 1,
        "dualpipev": plan.vp == 2 and plan.pp > 1 and plan.microbatches >= 2 * plan.pp,
    }.get(plan.schedule, plan.vp == 1 and plan.pp > 1)
    return values_if(not fits, vpp=plan.vp, m=plan.microbatches)


def _interleaved(plan: Planned) -> Values | None:
    broken = plan.schedule == "interleaved" and (plan.microbatches % plan.pp or plan.microbatches < plan.pp)
    return values_if(broken, m=plan.microbatches)


def _shards(plan: Planned) -> Values | None:
    sizes, falling = {*plan.shards} - {1}, list(plan.shards) == sorted(plan.shards, reverse=True)
    broken = len(sizes) > 1 or not falling or any(size > plan.ranks or plan.ranks % size for size in sizes)
    return values_if(broken, shards=max(sizes, default=1))


_RULES = (
    Rule("world", "tp {tp} x cp {cp} x pp {pp} x dp {dp} = {product} devices are not the {devices} of the cluster", _world, "never",
         "cluster"),
    Rule("batch", "global batch {batch} is not dp {dp} x micro-batch {mb} x {gas} micro-batches", divisibility.batch, "never"),
    Rule("heads", "num_attention_heads ({heads}) must be a multiple of tensor parallelism ({tp})", divisibility.heads, "never"),
    Rule("key-value-heads", "key-value heads ({heads}) must be a multiple of tensor parallelism ({tp})",
         divisibility.key_value_heads, "never"),
    Rule("width", "{width} is not divisible by {tp}", divisibility.width, "never"),
    Rule("sequence", "sequence length {sequence} is not divisible by 2 x cp {cp}, or by tp {tp} x cp", divisibility.sequence,
         "never"),
    Rule("context-hybrid", "hybrid context parallelism exchanges heads inside a scale-up domain and rings across several: cp "
         "{cp} has {inner} in one", _context_hybrid, "never"),
    Rule("context-heads", "heads ({heads}) are not divisible by the {ways} ranks that exchange them (cp {cp})", _context_heads,
         "never"),
    Rule("context-window", "{kind} context parallelism has no kernels for attention windows or sinks", divisibility.context_window,
         "never"),
    Rule("positions", "sequence length {sequence} exceeds the position table of {rows} rows", divisibility.position_table, "never",
         "model"),
    Rule("experts", "{experts} experts are not divisible by expert parallelism {ep}", divisibility.experts, "never"),
    Rule("expert-grid", "expert parallelism {ep} does not divide the {stage} ranks of a stage", divisibility.expert_grid, "never"),
    Rule("expert-sequence", "experts with tensor parallelism need sequence parallelism", divisibility.expert_sequence, "never"),
    Rule("layers", "{layers} layers are fewer than pp {pp} x vpp {vpp} = {places}", _layers, "never"),
    Rule("stage-shape", "layers by stage have the shape {shape}, not {layout}", _stages, "never"),
    Rule("stage-sum", "the number of model layers is {layers}, but the stages have {total}", _stage_sum, "never"),
    Rule("recompute-shape", "the recompute list has the shape {shape}, not {layout}", _recompute_shape, "never"),
    Rule("schedule", "the schedule {schedule} does not run with pp {pp}, vpp {vpp} and {m} micro-batches", _schedule, "never"),
    Rule("interleaved", "interleaving needs micro-batches ({m}) in multiples of pp ({pp})", _interleaved, "never"),
    Rule("shards", "the shard group of {shards} does not divide the {ranks} data-parallel ranks", _shards, "never"),
)


def arithmetic(prefix: str, words: Words) -> tuple[Limit, ...]:
    """Limits ``<prefix>.<rule>`` for every rule of this module."""
    return limits(prefix, _RULES, words=words)


def expressible(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """One limit for everything that a framework has no key for, as its features say."""

    def knobs(plan: Planned) -> Values | None:
        layout, modules = plan.layout, recomputed_modules(plan.layout.recompute)
        has = [
            (plan.sp and not features.sequence_parallel, "sequence parallelism"),
            (plan.etp > 1 and not features.expert_tensor_parallel, "tensor parallelism of experts"),
            (plan.ep > 1 and not features.expert_parallel, "expert parallelism"),
            (plan.zero not in features.zero_stages, f"ZeRO stage {plan.zero}"),
            (plan.zero >= 2 and plan.pp > 1 and not features.parameter_shards_with_pipeline,
             "gradients or parameters sharded under a pipeline"),
            (1 < layout.optimizer_shards < plan.ranks and not features.partial_sharding, "shard groups smaller than all ranks"),
            *((word not in features.recompute, f"{word} recomputation") for word in _treatments(layout)),
            (_counted(layout) and not features.recompute_per_stage, "recomputed layers by stage"),
            (_first(layout) and not features.recompute_first_layers, "the first layers of a chunk recomputed"),
            (modules - set(features.selective_modules), f"recomputing {', '.join(sorted(modules))}"),
            (layout.offload and not features.optimizer_offload, "offload"),
            (plan.cp > 1 and plan.kind not in features.context_kinds, f"{plan.kind} context parallelism"),
            (plan.schedule not in features.schedules, f"the schedule {plan.schedule}"),
            (layout.overlap.tensor and "tp" not in features.overlaps, "overlap of tensor parallelism"),
            (layout.overlap.expert and "ep" not in features.overlaps, "overlap of expert parallelism"),
        ]
        return words_if("knobs", has)

    return limits(prefix, (Rule("knobs", f"{title} has no key for {{knobs}}", knobs, "never"),))


def _treatments(layout: Layout) -> tuple[str, ...]:
    """none, selective or full, as far as a layout asks for them; what is left of layers that are counted is always kept."""
    words = {NoRecompute: "none", Selective: "selective", Full: "full"}
    found = treatments_of(layout.recompute)
    return tuple(dict.fromkeys(words[type(each)] for each in found[1:] or found))


def _counted(layout: Layout) -> bool:
    """Whether layers are recomputed by stage."""
    return isinstance(layout.recompute, Full) and isinstance(layout.recompute.layers, tuple)


def _first(layout: Layout) -> bool:
    """Whether the first few layers of each chunk are recomputed."""
    return isinstance(layout.recompute, Full) and isinstance(layout.recompute.layers, int)
