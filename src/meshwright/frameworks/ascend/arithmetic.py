"""Limits that the frameworks on Ascend share: what is cut must divide, lists by stage must fit, and knobs must have keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.estimate.split import treatments_of
from meshwright.frameworks import divisibility
from meshwright.frameworks.ascend.recompute_lists import Parts, excess, parts_of, recomputed_modules, unsayable
from meshwright.frameworks.ascend.stages import counts_of, shape_of, split_of
from meshwright.frameworks.base import Limit
from meshwright.frameworks.rules import limits_from, values_if, words_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.rules import Rules, Words


def inner_ranks(case: Case, layout: Layout) -> int:
    """Context-parallel ranks that exchange heads under the hybrid kind: those of one scale-up domain."""
    return max(1, min(layout.context_parallel, case.cluster.scale_up_devices // layout.tensor_parallel))


def _context_heads(case: Case, layout: Layout) -> Values | None:
    if layout.context_parallel == 1 or layout.context_kind not in {"ulysses", "hybrid"}:
        return None
    inner = layout.context_parallel if layout.context_kind == "ulysses" else inner_ranks(case, layout)
    if layout.context_kind == "hybrid" and not 1 < inner < layout.context_parallel:
        return {"heads": 0, "ways": inner, "cp": layout.context_parallel}
    ways = layout.tensor_parallel * inner
    for kind in case.model.kinds:
        attention = kind.attention
        keys = attention.num_heads if attention.latent else attention.num_key_value_heads
        if attention.num_heads % ways or keys % ways:
            return {"heads": min(attention.num_heads, keys), "ways": ways, "cp": layout.context_parallel}
    return None


def _world(case: Case, layout: Layout) -> Values | None:
    product, devices = layout.world, case.cluster.num_devices
    return values_if(
        product != devices, product=product, devices=devices, tp=layout.tensor_parallel, cp=layout.context_parallel,
        pp=layout.pipeline_parallel, dp=layout.data_parallel,
    )


def _layers(case: Case, layout: Layout) -> Values | None:
    places = layout.pipeline_parallel * layout.virtual_stages
    return values_if(
        case.model.num_layers < places, layers=case.model.num_layers, pp=layout.pipeline_parallel, vpp=layout.virtual_stages,
        places=places,
    )


def _stages(case: Case, layout: Layout) -> Values | None:
    split = layout.stage_layers
    if split is None:
        return None
    wanted = (layout.virtual_stages, layout.pipeline_parallel)
    shape = shape_of(split)
    return values_if(shape != wanted, shape=_tuple(shape, layout), layout=_tuple(wanted, layout))


def _tuple(shape: tuple[int, int] | None, layout: Layout) -> str:
    """A shape as NumPy prints it."""
    if shape is None:
        return "(ragged)"
    return str(shape) if layout.virtual_stages > 1 else f"({shape[1]},)"


def _stage_sum(case: Case, layout: Layout) -> Values | None:
    split = layout.stage_layers
    total = sum(map(sum, split)) if split else case.model.num_layers
    return values_if(total != case.model.num_layers, layers=case.model.num_layers, total=total, split=split)


def _recompute_shape(case: Case, layout: Layout) -> Values | None:
    wanted = (layout.virtual_stages, layout.pipeline_parallel)
    shapes = [shape for _, counts in _listed(layout) if (shape := shape_of(counts)) != wanted]
    return {"shape": _tuple(shapes[0], layout), "layout": _tuple(wanted, layout)} if shapes else None


def _listed(layout: Layout) -> Parts:
    """Treatments that a layout counts by stage."""
    counted = isinstance(layout.recompute, Mixed) or _counted(layout)
    return parts_of(layout.recompute, ()) if counted else ()


def recompute_excess(case: Case, layout: Layout) -> Values | None:
    """No chunk recomputes more layers than it has: values ``full`` (layers recomputed in full), ``part`` (in part) and ``layers``
    of the first that does."""
    split, parts = split_of(case, layout), _listed(layout)
    if not parts or _recompute_shape(case, layout) or shape_of(split) != (layout.virtual_stages, layout.pipeline_parallel):
        return None
    place = excess(parts, split)
    if place is None:
        return None
    chunk, stage, total = place
    full = counts_of(layout.recompute, split)[chunk][stage]
    return {"full": full, "part": total - full, "layers": split[chunk][stage]}


CROSSING = ("chunk {chunk} of stage {stage} has layers that select_recompute alone and layers that select_comm_recompute alone is "
            "for: both lists begin at the same layer")


def recompute_crossing(case: Case, layout: Layout) -> Values | None:
    """Lists that begin at the same layer say every chunk: values ``stage`` and ``chunk`` of the first that they do not."""
    split = split_of(case, layout)
    if not isinstance(layout.recompute, Mixed) or _recompute_shape(case, layout):
        return None
    place = unsayable(layout.recompute.parts, split)
    return None if place is None else {"chunk": place[0], "stage": place[1]}


def _schedule(case: Case, layout: Layout) -> Values | None:
    pp, vp, m = layout.pipeline_parallel, layout.virtual_stages, layout.num_microbatches
    fits = {
        "interleaved": vp > 1 and pp > 1,
        "1f1b": vp == 1,
        "dualpipev": vp == 2 and pp > 1 and m >= 2 * pp,
    }.get(layout.schedule, vp == 1 and pp > 1)
    return values_if(not fits, schedule=layout.schedule, pp=pp, vpp=vp, m=m)


def _interleaved(case: Case, layout: Layout) -> Values | None:
    pp, m = layout.pipeline_parallel, layout.num_microbatches
    return values_if(layout.schedule == "interleaved" and (m % pp or m < pp), m=m, pp=pp)


def _shards(case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * layout.context_parallel
    sizes = {layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards} - {1}
    ordered = layout.optimizer_shards >= layout.gradient_shards >= layout.parameter_shards
    broken = len(sizes) > 1 or not ordered or any(size > ranks or ranks % size for size in sizes)
    return values_if(broken, shards=max(sizes, default=1), ranks=ranks)


_RULES: Rules = {
    "world": (_world, "cluster",
              "tp {tp} x cp {cp} x pp {pp} x dp {dp} = {product} devices are not the {devices} of the cluster"),
    "batch": (divisibility.batch, "layout", "global batch {batch} is not dp {dp} x micro-batch {mb} x {gas} micro-batches"),
    "heads": (divisibility.heads, "layout", "num_attention_heads ({heads}) must be a multiple of tensor parallelism ({tp})"),
    "key-value-heads": (divisibility.key_value_heads, "layout",
                        "key-value heads ({heads}) must be a multiple of tensor parallelism ({tp})"),
    "width": (divisibility.width, "layout", "{width} is not divisible by {tp}"),
    "sequence": (divisibility.sequence, "layout",
                 "sequence length {sequence} is not divisible by 2 x cp {cp}, or by tp {tp} x cp"),
    "context-heads": (_context_heads, "layout",
                      "heads ({heads}) are not divisible by the {ways} ranks that exchange them (cp {cp})"),
    "context-window": (divisibility.context_window, "layout",
                       "{kind} context parallelism has no kernels for attention windows or sinks"),
    "positions": (divisibility.position_table, "model", "sequence length {sequence} exceeds the position table of {rows} rows"),
    "experts": (divisibility.experts, "layout", "{experts} experts are not divisible by expert parallelism {ep}"),
    "expert-grid": (divisibility.expert_grid, "layout", "expert parallelism {ep} does not divide the {stage} ranks of a stage"),
    "expert-sequence": (divisibility.expert_sequence, "layout", "experts with tensor parallelism need sequence parallelism"),
    "layers": (_layers, "layout", "{layers} layers are fewer than pp {pp} x vpp {vpp} = {places}"),
    "stage-shape": (_stages, "layout", "layers by stage have the shape {shape}, not {layout}"),
    "stage-sum": (_stage_sum, "layout", "the number of model layers is {layers}, but the stages have {total}"),
    "recompute-shape": (_recompute_shape, "layout", "the recompute list has the shape {shape}, not {layout}"),
    "schedule": (_schedule, "layout", "the schedule {schedule} does not run with pp {pp}, vpp {vpp} and {m} micro-batches"),
    "interleaved": (_interleaved, "layout", "interleaving needs micro-batches ({m}) in multiples of pp ({pp})"),
    "shards": (_shards, "layout", "the shard group of {shards} does not divide the {ranks} data-parallel ranks"),
}


def arithmetic(prefix: str, words: Words) -> Iterator[Limit]:
    """Limits ``<prefix>.<rule>`` for every rule of this module."""
    yield from limits_from(prefix, _RULES, words)


def expressible(prefix: str, title: str, features: Features) -> Iterator[Limit]:
    """One limit for everything that a framework has no key for, as its features say."""

    def knobs(case: Case, layout: Layout) -> Values | None:
        ranks = layout.data_parallel * layout.context_parallel
        has = [
            (layout.sequence_parallel and not features.sequence_parallel, "sequence parallelism"),
            (layout.expert_tensor_parallel > 1 and not features.expert_tensor_parallel, "tensor parallelism of experts"),
            (layout.expert_parallel > 1 and not features.expert_parallel, "expert parallelism"),
            (layout.zero_stage not in features.zero_stages, f"ZeRO stage {layout.zero_stage}"),
            (layout.zero_stage >= 2 and layout.pipeline_parallel > 1 and not features.parameter_shards_with_pipeline,
             "gradients or parameters sharded under a pipeline"),
            (1 < layout.optimizer_shards < ranks and not features.partial_sharding, "shard groups smaller than all ranks"),
            *((word not in features.recompute, f"{word} recomputation") for word in _treatments(layout)),
            (_counted(layout) and not features.recompute_per_stage, "recomputed layers by stage"),
            (_first(layout) and not features.recompute_first_layers, "the first layers of a chunk recomputed"),
            (bool(_modules(layout) - set(features.selective_modules)), f"recomputing {', '.join(sorted(_modules(layout)))}"),
            (bool(layout.offload) and not features.optimizer_offload, "offload"),
            (layout.context_parallel > 1 and layout.context_kind not in features.context_kinds,
             f"{layout.context_kind} context parallelism"),
            (layout.schedule not in features.schedules, f"the schedule {layout.schedule}"),
            (layout.overlap.tensor and "tp" not in features.overlaps, "overlap of tensor parallelism"),
            (layout.overlap.expert and "ep" not in features.overlaps, "overlap of expert parallelism"),
        ]
        return words_if("knobs", has)

    yield Limit(id=f"{prefix}.knobs", words=f"{title} has no key for {{knobs}}", noticed="never", broken=knobs)


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


def _modules(layout: Layout) -> set[str]:
    """Modules that are recomputed."""
    return set(recomputed_modules(layout.recompute))
