"""Hypothesis strategies: small models of every sort, clusters of every shape, batches, and legal layouts of a case."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from operator import sub

from hypothesis import assume
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.catalog import calibration, cluster_for, implementations, load_model, optimizer, optimizers, precisions, shrink
from meshwright.catalog import implementation as implementation_named
from meshwright.catalog import precision as precision_named
from meshwright.domain.attention import Attention, LatentAttention
from meshwright.domain.case import Case
from meshwright.domain.cluster import Cluster
from meshwright.domain.features import Features
from meshwright.domain.layout import Full, Grid, Layout, NoRecompute, Overlap, Recompute, Selective, mixed, whole
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.domain.training import Batch, Lora, Training
from meshwright.estimate.split import default_split
from meshwright.search import layout_refusals
from meshwright.search.rules import knobs_of, rules_of
from meshwright.search.space import Pins, divisors, make_space, mesh_grid

EVERYTHING = Features(
    name="everything",
    schedules=("1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"),
    zero_stages=(0, 1, 2, 3),
    parameter_shards_with_pipeline=True,
    context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
    selective_modules=("core_attn", "layernorm", "mlp_act", "comm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts"),
    positions=("rope", "learned", "alibi", "none"),
    interleaved_needs_multiple=False,
    recompute_per_stage=True,
    recompute_mixed=True,
)
"""A framework that can do all that the planner knows."""
MEGATRON = Features(name="megatron", zero_stages=(0, 1, 2, 3))


_precision = cache(precision_named)
_optimizer = cache(optimizer)
_implementation = cache(implementation_named)
_cluster = cache(cluster_for)


def attentions() -> st.SearchStrategy[Attention]:
    """MHA, GQA, MQA and MLA; windows, query-key norms, biases, sinks."""
    return st.one_of(_grouped(), _latent())


@st.composite
def _grouped(draw: st.DrawFn) -> Attention:
    heads = draw(st.sampled_from((1, 2, 3, 4, 6, 8, 12)))
    return Attention(
        num_heads=heads,
        num_key_value_heads=draw(st.sampled_from(divisors(heads))),
        head_dim=draw(st.sampled_from((8, 40, 64, 128))),
        window_tokens=draw(st.sampled_from((None, None, 1, 100, 4096))),
        query_key_norm=draw(st.sampled_from(("none", "head", "full"))),
        query_bias=draw(st.booleans()),
        key_value_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        sinks=draw(st.booleans()),
    )


@st.composite
def _latent(draw: st.DrawFn) -> Attention:
    heads, nope, rope = draw(st.sampled_from((1, 4, 8, 12))), draw(st.sampled_from((16, 64))), draw(st.sampled_from((8, 32)))
    latent = LatentAttention(
        query_rank=draw(st.sampled_from((None, 48, 192))),
        key_value_rank=draw(st.sampled_from((32, 96))),
        nope_dim=nope,
        rope_dim=rope,
        value_dim=draw(st.sampled_from((16, 64))),
    )
    return Attention(num_heads=heads, num_key_value_heads=heads, head_dim=nope + rope, latent=latent)


@st.composite
def mixtures(draw: st.DrawFn) -> MixtureOfExperts:
    """Routed experts, with and without shared ones, groups and biases."""
    experts = draw(st.sampled_from((2, 4, 6, 8, 12)))
    groups = draw(st.sampled_from((1, 2)))
    return MixtureOfExperts(
        num_experts=experts,
        experts_per_token=draw(st.integers(1, experts)),
        expert_width=draw(st.sampled_from((24, 96, 256))),
        gated=draw(st.booleans()),
        shared_width=draw(st.sampled_from((0, 0, 48, 192))),
        shared_gate=draw(st.booleans()),
        router_bias=draw(st.booleans()),
        expert_bias=draw(st.booleans()),
        num_groups=groups,
        groups_per_token=draw(st.integers(1, groups)),
    )


def blocks(*, moe: bool | None = None) -> st.SearchStrategy[Mlp | MixtureOfExperts]:
    """Dense blocks, mixtures, or either."""
    dense = st.builds(Mlp, width=st.sampled_from((48, 96, 384, 1000)), gated=st.booleans(), bias=st.booleans())
    return st.one_of(dense, mixtures()) if moe is None else mixtures() if moe else dense


@st.composite
def models(draw: st.DrawFn, *, uniform: bool = False, moe: bool | None = None, max_layers: int = 9) -> Model:
    """Small models of one or two kinds of layers: dense first, alternating windows, mixtures, MTP, tied embeddings."""
    kinds = [
        LayerKind(
            attention=draw(attentions()),
            feed_forward=draw(blocks(moe=moe)),
            norms=draw(st.sampled_from((1, 2, 4))),
            parallel_block=draw(st.booleans()),
        )
    ]
    mixture = kinds[0].experts
    if not uniform and draw(st.booleans()):
        other = draw(blocks(moe=False)) if mixture is None else draw(st.sampled_from((mixture, Mlp(width=96))))
        kinds.append(LayerKind(attention=draw(attentions()), feed_forward=other))
    layers = draw(st.integers(1, max_layers))
    first = draw(st.integers(0, layers))
    alternate = draw(st.booleans())
    pattern = tuple((index % 2 if alternate else int(index >= first)) % len(kinds) for index in range(layers))
    position = draw(st.sampled_from(("rope", "learned", "alibi", "none")))
    model = Model(
        name="small",
        hidden=draw(st.sampled_from((24, 96, 192, 1024))),
        vocabulary=draw(st.sampled_from((1, 97, 1000, 32003))),
        kinds=tuple(kinds),
        pattern=pattern,
        norm=draw(st.sampled_from(("rms", "layer", "layer-no-bias", "none"))),
        position=position,
        position_table=512 if position == "learned" else 0,
        tied_embeddings=draw(st.booleans()),
        head_bias=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        final_norm=draw(st.booleans()),
        num_mtp_layers=0 if uniform else draw(st.sampled_from((0, 0, 1, 2))),
    )
    shared = model.num_mtp_layers == 1 and model.vocabulary % 2  # every second vocabulary is odd
    return replace(model, num_mtp_passes=2) if shared else model


@st.composite
def clusters(draw: st.DrawFn, *, max_nodes: int = 3) -> Cluster:
    """Clusters whose nodes have 1 to 16 devices, with NVLink over a node, several nodes, or not at all."""
    per_node = draw(st.sampled_from((1, 2, 3, 4, 6, 8, 16)))
    base = _cluster(draw(st.sampled_from(("h100-sxm", "a100-40g-sxm", "b200", "rtx-4090", "mi300x", "ascend-910b"))))
    devices = per_node * draw(st.integers(1, max_nodes))
    return replace(
        base,
        num_devices=devices,
        devices_per_node=per_node,
        scale_up_devices=draw(st.sampled_from((1, per_node, 2 * per_node, 72))),
        oversubscription=draw(st.sampled_from((1.0, 2.5))),
        pod_devices=draw(st.sampled_from((None, per_node))),
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Batches and sequences, odd ones too."""
    sequence = draw(st.sampled_from((1, 2, 7, 64, 96, 512, 4096)))
    packed = draw(st.sampled_from((None, None, float(sequence))))
    number = draw(st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)))
    return Batch(global_batch_sequences=number, sequence_tokens=sequence, mean_square_document_tokens=packed)


@st.composite
def trainings(draw: st.DrawFn, cluster: Cluster) -> Training:
    """Tasks and the precision recipes that the device can run."""
    names = [
        name
        for name in precisions()
        if {_precision(name).gemm_dtype, _precision(name).base_dtype} <= set(cluster.device.peak_flops_per_s)
    ]
    task = draw(st.sampled_from(("pretrain", "pretrain", "sft", "lora")))
    return Training(
        task=task,
        precision=_precision(draw(st.sampled_from(sorted(names)))),
        optimizer=_optimizer(draw(st.sampled_from(sorted(optimizers())))),
        lora=Lora(rank=4) if task == "lora" else None,
    )


@st.composite
def cases(draw: st.DrawFn, *, uniform: bool = False, moe: bool | None = None, implementation: str | None = None) -> Case:
    """A whole case of small parts."""
    cluster = draw(clusters())
    name = implementation or draw(st.sampled_from(sorted(implementations())))
    return Case(
        model=draw(models(uniform=uniform, moe=moe)),
        cluster=cluster,
        batch=draw(batches()),
        training=draw(trainings(cluster)),
        implementation=_implementation(name),
        calibration=calibration("none", cluster.device),
        flops_convention=draw(st.sampled_from(("causal", "full", "megatron"))),
    )


@st.composite
def layouts(draw: st.DrawFn, case: Case, features: Features = EVERYTHING) -> Layout:
    """A legal layout of a case, by the rules of the search."""
    devices = case.cluster.num_devices
    space = make_space(case, features, devices, Pins())
    mesh = mesh_grid(space)
    for rule in rules_of("mesh"):
        keep = rule.holds(case, features, knobs_of(mesh)) & (mesh["tp"] > 0)
        mesh = {name: column[keep] for name, column in mesh.items()}
    assume(len(mesh["tp"]))
    index = draw(st.integers(0, len(mesh["tp"]) - 1))
    degree = {name: int(column[index]) for name, column in mesh.items()}
    share = case.batch.global_batch_sequences // degree["dp"]
    mb = draw(st.sampled_from(divisors(share)))
    schedule = draw(st.sampled_from(features.schedules))
    vp = {"interleaved": draw(st.integers(2, 4)), "dualpipev": 2}.get(schedule, 1)
    ranks = degree["dp"] * (degree["cp"] if features.shards_over_context else 1)
    stage = draw(st.sampled_from(features.zero_stages)) if ranks > 1 else 0
    size = draw(st.sampled_from(divisors(ranks)[1:])) if stage else 1
    modules = draw(st.lists(st.sampled_from(features.selective_modules), min_size=1, max_size=3, unique=True))
    plain = st.sampled_from((NoRecompute(), Selective(modules=tuple(modules)), Full(), Full(layers=1)))
    split = default_split(case, degree["pp"], vp)
    recompute = draw(st.one_of(plain, mixed_recomputes(split, tuple(modules))) if features.recompute_mixed else plain)
    overlap = Overlap(tensor=draw(st.booleans()), expert=draw(st.booleans()), gradient_reduce=draw(st.booleans()))
    layout = Layout(
        tensor_parallel=degree["tp"],
        context_parallel=degree["cp"],
        pipeline_parallel=degree["pp"],
        data_parallel=degree["dp"],
        expert_parallel=degree["ep"],
        expert_tensor_parallel=degree["etp"],
        virtual_stages=vp,
        microbatch_sequences=mb,
        sequence_parallel=degree["tp"] > 1 and case.implementation.sequence_parallel,
        num_microbatches=share // mb,
        optimizer_shards=size,
        gradient_shards=size if stage >= 2 else 1,
        parameter_shards=size if stage >= 3 else 1,
        recompute=recompute,
        schedule=schedule,
        overlap=overlap,
        context_kind=draw(st.sampled_from(features.context_kinds)),
        offload=draw(st.sampled_from(((), (), ("optimizer",)))),
    )
    if layout_refusals(case, features, layout):
        layout = replace(layout, schedule="1f1b", virtual_stages=1, recompute=whole(recompute))
    assume(not layout_refusals(case, features, layout))
    return layout


@st.composite
def mixed_recomputes(draw: st.DrawFn, split: Grid, modules: tuple[str, ...]) -> Recompute:
    """Counts by chunk and stage of layers in full and of layers that recompute modules."""

    def some(layers: Grid) -> Grid:
        return tuple(tuple(draw(st.integers(0, count)) for count in row) for row in layers)

    full = some(split)
    left = tuple(tuple(map(sub, row, taken)) for row, taken in zip(split, full, strict=True))
    return mixed([(Full(), full), (Selective(modules=modules), some(left))], split)


@st.composite
def planned(draw: st.DrawFn, features: Features = EVERYTHING, **options: object) -> tuple[Case, Layout]:
    """A case with a legal layout of it."""
    case = draw(cases(**options))  # type: ignore[arg-type]
    return case, draw(layouts(case, features))


def small_case(
    model: str = "llama3-8b",
    device: str = "h100-sxm",
    *,
    devices: int = 8,
    batch: int = 16,
    sequence: int = 2048,
    layers: int | None = None,
    precision: str = "bf16",
    implementation: str = "megatron-te",
    task: str = "pretrain",
    per_node: int | None = None,
) -> Case:
    """A case from the catalogue, shrunk to a few layers where asked."""
    found = load_model(model)
    cluster = cluster_for(device, num_devices=devices, devices_per_node=per_node)
    return Case(
        model=found if layers is None else shrink(found, layers),
        cluster=cluster,
        batch=Batch(global_batch_sequences=batch, sequence_tokens=sequence),
        training=Training(
            task=task,
            precision=precision_named(precision),
            optimizer=optimizer("adamw"),
            lora=Lora() if task == "lora" else None,
        ),
        implementation=implementation_named(implementation),
        calibration=calibration("none", cluster.device),
    )


__all__ = [
    "EVERYTHING",
    "MEGATRON",
    "attentions",
    "batches",
    "blocks",
    "cases",
    "clusters",
    "examples",
    "layouts",
    "mixtures",
    "models",
    "planned",
    "small_case",
    "trainings",
]
