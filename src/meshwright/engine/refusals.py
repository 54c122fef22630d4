"""What the reference step cannot run, said in one line each before anything starts. Pure: no torch here."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Mixed, Selective
from meshwright.domain.mixers import MIXER_NAMES, GatedDelta, Mamba2
from meshwright.domain.model import Mlp
from meshwright.engine.stages import places
from meshwright.errors import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.engine.request import Request

RECOMPUTED = ("core_attn", "mlp", "moe", "shared_experts", "op")
"""Modules that selective recomputation reaches here."""
MIXERS = (GatedDelta, Mamba2)
"""Linear mixers that there are modules of."""
V_CHUNKS = 2
"""Chunks of a rank where stages fold back (DualPipeV)."""


def refused(request: Request, *, world: int | None = None, devices: int | None = None) -> tuple[Message, ...]:
    """Every reason why this run cannot start; empty where it can. ``world``: ranks that are there; ``devices``: accelerators."""
    model, layout = request.model, request.layout
    return (
        *_ranks(request, world, devices), *_kinds(model), *_mixers(request), *_tensor(model, layout),
        *_context(model, layout, request.sequence_tokens), *_experts(model, layout), *_pipeline(model, layout),
        *_shards(model, layout), *_others(request),
    )


def _message(name: str, template: str, /, **values: object) -> Message:
    return Message(f"engine.{name}", template, values)


def _ranks(request: Request, world: int | None, devices: int | None) -> Iterator[Message]:
    wanted = request.layout.world
    if world is not None and world != wanted:
        yield _message(
            "world", "the layout is for {wanted} ranks (tp x cp x pp x dp), and {world} are started", wanted=wanted, world=world
        )
    if request.options.backend == "cuda" and devices is not None and devices < min(wanted, world or wanted):
        yield _message(
            "devices", "{wanted} ranks need a device each, and this machine has {devices}", wanted=wanted, devices=devices
        )


def _kinds(model: Model) -> Iterator[Message]:
    """Parts of layers and of the model that there are no modules of."""
    for mixer in dict.fromkeys(type(mixer) for mixer in model.mixers):
        if mixer not in MIXERS:
            yield _message("mixer", "{model} has {name}, and the reference step has {known}", model=model.name,
                           name=MIXER_NAMES[mixer], known=" and ".join(MIXER_NAMES[each] for each in MIXERS))
    attentions, kinds = model.attentions, model.kinds
    parts = {
        "compressed attention": any(each.compressed for each in attentions),
        "sparse attention": any(each.selected_tokens or each.indexer for each in attentions),
        "keys and values that layers share": any(each.shared_key_value or each.borrows_key_value for each in attentions),
        "a gate on latent attention": any(each.latent and each.gate != "none" for each in attentions),
        "values of another width than their keys": any(each.value_head_dim not in {None, each.head_dim} for each in attentions),
        "sinks in latent attention": any(each.latent and each.sinks for each in attentions),
        "experts in a latent space": any(kind.experts and kind.experts.latent for kind in kinds),
        "several residual streams": any(kind.streams > 1 for kind in kinds),
        "projections beside its layers": any(kind.sides for kind in kinds) or bool(model.front or model.back),
        "tables beside its embedding": bool(model.lookups),
        "a vision tower": model.tower is not None,
    }
    for name, there in parts.items():
        if there:
            yield _message("part", "{model} has {name}, which the reference step has not", model=model.name, name=name)


def _mixers(request: Request) -> Iterator[Message]:
    """What linear mixers are not run under here."""
    model, layout, options = request.model, request.layout, request.options
    if not model.mixers:
        return
    name = MIXER_NAMES[type(model.mixers[0])]
    asked = {
        f"cp={layout.context_parallel}": layout.context_parallel > 1,
        f"schedule={layout.schedule}, which splits the backward pass,": layout.schedule in ("zb1p", "dualpipev"),
        "packed samples": options.packed, "compiled layers": options.compiled,
    }
    for word, there in asked.items():
        if there:
            yield _message("mixer-layout", "{word} with {name} is not in the reference step", word=word, name=name)


def _tensor(model: Model, layout: Layout) -> Iterator[Message]:
    tp = layout.tensor_parallel
    if tp == 1:
        return
    sizes: dict[str, int] = {"the vocabulary": model.vocabulary}
    for kind in model.kinds:
        attention, block = kind.attention, kind.feed_forward
        if attention is not None:
            sizes["the attention heads"] = gcd(sizes.get("the attention heads", 0), attention.num_heads)
        if attention is not None and attention.latent is None:
            sizes["the key-value heads"] = gcd(sizes.get("the key-value heads", 0), attention.num_key_value_heads)
        if kind.mixer is not None:
            sizes["the groups of heads of a mixer"] = gcd(sizes.get("the groups of heads of a mixer", 0), kind.mixer.groups)
        width = block.width if isinstance(block, Mlp) else block.shared_width
        sizes["the feed-forward width"] = gcd(sizes.get("the feed-forward width", 0), width)
    for name, size in sizes.items():
        if size % tp:
            yield _message(
                "tensor",
                "tp={tp} does not divide {name} ({size}), and PyTorch's styles repeat nothing",
                tp=tp,
                name=name,
                size=size,
            )
    if any(each.query_key_norm == "full" for each in model.attentions):
        yield _message(
            "tensor-norm", "tp={tp}: {model} normalises queries and keys over all heads, which no rank has", tp=tp, model=model.name
        )
    if model.is_moe and not layout.sequence_parallel:
        yield _message("tensor-experts", "tp={tp} with experts needs sp, else every rank would send the same tokens", tp=tp)


def _context(model: Model, layout: Layout, sequence_tokens: int) -> Iterator[Message]:
    cp, split = layout.context_parallel, layout.tensor_parallel if layout.sequence_parallel else 1
    if sequence_tokens % (cp * split):
        yield _message(
            "sequence", "a sequence of {tokens} tokens does not divide by cp x tp = {ways}", tokens=sequence_tokens, ways=cp * split
        )
    if model.position == "learned" and sequence_tokens > model.position_table:
        yield _message("positions", "a sequence of {tokens} tokens exceeds the position table of {rows} rows",
                       tokens=sequence_tokens, rows=model.position_table)
    if cp == 1:
        return
    if layout.context_kind != "ulysses":
        yield _message(
            "context", "context={kind} is not in the reference step: PyTorch's ring attention runs on no CPU; context=ulysses is",
            kind=layout.context_kind,
        )
    ways = cp * layout.tensor_parallel
    for attention in set(model.attentions):
        keys = attention.num_heads if attention.latent else attention.num_key_value_heads
        if attention.num_heads % ways or keys % ways:
            yield _message("context-heads", "cp x tp = {ways} does not divide {heads} heads and {keys} key-value heads (Ulysses)",
                           ways=ways, heads=attention.num_heads, keys=keys)


def _experts(model: Model, layout: Layout) -> Iterator[Message]:
    ep, ranks = layout.expert_parallel, layout.world // layout.pipeline_parallel
    if layout.expert_tensor_parallel > 1:
        yield _message("expert-tensor", "etp={etp} is not in the reference step: an expert is whole on its rank",
                       etp=layout.expert_tensor_parallel)
    if ep == 1:
        return
    if not model.is_moe:
        yield _message("experts", "ep={ep}: {model} has no experts", ep=ep, model=model.name)
    if ranks % ep:
        yield _message("expert-ranks", "ep={ep} does not divide the {ranks} ranks of a stage (tp x cp x dp)", ep=ep, ranks=ranks)
    for number in {kind.experts.num_experts for kind in model.kinds if kind.experts}:
        if number % ep:
            yield _message("expert-count", "ep={ep} does not divide {number} experts", ep=ep, number=number)


def _pipeline(model: Model, layout: Layout) -> Iterator[Message]:
    pp, vp, microbatches, schedule = layout.pipeline_parallel, layout.virtual_stages, layout.num_microbatches, layout.schedule
    schedule = "interleaved" if schedule == "1f1b" and vp > 1 else schedule
    if pp == 1:
        if vp > 1:
            yield _message("chunks", "vp={vp} needs pp above 1", vp=vp)
        return
    wanted = {"interleaved": max(vp, 2), "dualpipev": V_CHUNKS}.get(schedule, 1)
    if vp != wanted:
        yield _message(
            "schedule", "schedule={schedule} has {wanted} chunks a rank, not vp={vp}", schedule=schedule, wanted=wanted, vp=vp
        )
        return
    least = {"1f1b": pp, "dualpipev": V_CHUNKS * pp}.get(schedule, 1)
    if microbatches < least:
        yield _message(
            "microbatches", "schedule={schedule} on {pp} ranks needs at least {least} micro-batches, not {microbatches}",
            schedule=schedule, pp=pp, least=least, microbatches=microbatches,
        )
    rounds = max(1, microbatches // pp)
    if schedule in ("interleaved", "zb1p") and microbatches % rounds:
        yield _message(
            "rounds", "schedule={schedule} on {pp} ranks: {rounds} rounds do not divide {microbatches} micro-batches",
            schedule=schedule, pp=pp, rounds=rounds, microbatches=microbatches,
        )
    yield from _split(model, layout)


def _split(model: Model, layout: Layout) -> Iterator[Message]:
    """Layers of every stage: all of them, and none empty between the ends, for a stage must compute something."""
    pp, vp = layout.pipeline_parallel, layout.virtual_stages
    split = layout.stage_layers
    if split is not None and (len(split) != vp or any(len(chunk) != pp for chunk in split)):
        yield _message("split-shape", "layers= gives no count for each of {vp} chunks on {pp} stages", vp=vp, pp=pp)
        return
    if split is not None and sum(map(sum, split)) != model.num_layers:
        yield _message("split", "layers= places {placed} layers, and {model} has {layers}",
                       placed=sum(map(sum, split)), model=model.name, layers=model.num_layers)
        return
    for stage in range(pp):
        for place in places(model, layout, stage):
            if not place.layers and not place.first and not place.last:
                yield _message("empty-stage", "stage {stage} has no layer in chunk {chunk}, so nothing to compute there",
                               stage=stage, chunk=place.chunk)


def _shards(model: Model, layout: Layout) -> Iterator[Message]:
    optimizer, gradient, parameter = layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards
    ranks = layout.data_parallel * layout.context_parallel
    if ranks % optimizer or len({optimizer, gradient, parameter} - {1}) > 1 or not optimizer >= gradient >= parameter:
        yield _message(
            "shards", "shards={optimizer},{gradient},{parameter} over {ranks} ranks: one group, of a size that divides them, "
            "for the optimizer (ZeRO-1), gradients too (2), or parameters too (3)",
            optimizer=optimizer, gradient=gradient, parameter=parameter, ranks=ranks,
        )
        return
    if not model.is_moe or layout.expert_tensor_parallel > 1 or (ranks * layout.tensor_parallel) % layout.expert_parallel:
        return
    replicas = ranks * layout.tensor_parallel // layout.expert_parallel
    if replicas % min(optimizer, replicas):
        yield _message(
            "expert-shards",
            "{shards} shards do not divide the {replicas} replicas of an expert",
            shards=optimizer,
            replicas=replicas,
        )


def _others(request: Request) -> Iterator[Message]:
    layout, model, options = request.layout, request.model, request.options
    if model.num_mtp_layers:
        yield _message("mtp", "{model} has multi-token-prediction layers, which the reference step has not (num_mtp_layers)",
                       model=model.name)
    if layout.offload:
        yield _message("offload", "offload={offload} is not in the reference step", offload=",".join(layout.offload))
    if layout.attention is not None:
        yield _message("attention", "attention={kernel} is not in the reference step, whose attention is that of PyTorch's choice",
                       kernel=layout.attention)
    if layout.compiled is not None:
        yield _message("compile", "compile={word} is no word of the reference step: --compile compiles its layers",
                       word="on" if layout.compiled else "off")
    beside = [word for word, asked in (("tp", layout.overlap.tensor), ("ep", layout.overlap.expert)) if asked]
    if beside:
        yield _message("overlap", "overlap={words} is not in the reference step, whose layers wait for these messages; "
                       "gradients, parameters and stages overlap as PyTorch does it", words=",".join(beside))
    match layout.recompute:
        case Selective(modules=modules):
            unknown = [module for module in modules if module not in RECOMPUTED]
            if unknown:
                yield _message("recompute", "recompute=selective:{unknown} is not in the reference step, which has {known}",
                               unknown=",".join(unknown), known=", ".join(RECOMPUTED))
        case Full(layers=tuple(grid)):
            if len(grid) != layout.virtual_stages or any(len(chunk) != layout.pipeline_parallel for chunk in grid):
                yield _message("recompute-shape", "recompute=full:[...] gives no count for each of {vp} chunks on {pp} stages",
                               vp=layout.virtual_stages, pp=layout.pipeline_parallel)
        case Mixed():
            yield _message("recompute-mixed", "layers of one pipeline recomputed in different ways are not in the reference step")
        case _:
            pass
    if options.compiled and layout.pipeline_parallel > 1 and layout.schedule in ("zb1p", "dualpipev"):
        yield _message("compiled", "schedule={schedule} splits the backward pass, which PyTorch does not for compiled layers",
                       schedule=layout.schedule)
    if options.compiled and layout.tensor_parallel > 1:
        yield _message("compiled-tensor", "tp={tp} with compiled layers is not in the reference step", tp=layout.tensor_parallel)
    if options.steps < 1 or options.warmup_steps < 0:
        yield _message("steps", "steps={steps} must be at least 1 and warmup_steps={warmup} at least 0",
                       steps=options.steps, warmup=options.warmup_steps)
