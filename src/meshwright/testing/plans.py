"""Random plans of a framework: cases it can train, layouts within its features, or layouts of any kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Overlap, Recompute, Selective, mixed
from meshwright.errors import InputError
from meshwright.estimate.split import even_split
from meshwright.frameworks import framework as framework_named
from meshwright.search import layout_refusals

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.frameworks import Framework

T = TypeVar("T")
Choose: TypeAlias = Callable[[Sequence[Any]], Any]
"""Takes one of several: ``random.Random.choice``, or a draw of hypothesis."""

MODELS = (
    "llama3-8b", "llama3-70b", "llama2-7b", "qwen2.5-7b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b",
    "gpt3-175b", "mistral-7b", "qwen3-8b", "bloom-176b",
)
"""One of each sort: GQA, MHA, biases, MoE with and without shared experts, MLA with MTP, windows and sinks, learned and
ALiBi positions."""
DEVICES = ("h100-sxm", "ascend-910b")
TRIES = 400
"""Draws for each plan that is wanted."""
MIXED_EVERY = 10
"""One of so many plans of any kind treats its layers differently, whether the framework can or not."""

FEATURES: Mapping[str, Callable[[Layout], bool]] = {
    "tensor parallel": lambda layout: layout.tensor_parallel > 1,
    "sequence parallel": lambda layout: layout.sequence_parallel,
    "context parallel": lambda layout: layout.context_parallel > 1,
    "pipeline": lambda layout: layout.pipeline_parallel > 1,
    "virtual stages": lambda layout: layout.virtual_stages > 1,
    "uneven stages": lambda layout: layout.stage_layers is not None,
    "expert parallel": lambda layout: layout.expert_parallel > 1,
    "expert tensor parallel": lambda layout: layout.expert_parallel > 1 and layout.expert_tensor_parallel > 1,
    "recompute lists": lambda layout: isinstance(layout.recompute, Full) and isinstance(layout.recompute.layers, tuple),
    "mixed recompute": lambda layout: isinstance(layout.recompute, Mixed),
    "selective recompute": lambda layout: isinstance(layout.recompute, Selective),
    "full recompute": lambda layout: isinstance(layout.recompute, Full),
    "optimizer sharding": lambda layout: layout.zero_stage == 1,
    "sharded parameters": lambda layout: layout.zero_stage >= 2,
    "partial sharding": lambda layout: 1 < layout.optimizer_shards < layout.data_parallel * layout.context_parallel,
    "offload": lambda layout: bool(layout.offload),
}
"""Name of a feature -> whether a layout has it."""


def offered(features: Features) -> tuple[str, ...]:
    """The features of this module that a framework declares."""
    experts = features.mixture_of_experts and features.expert_parallel
    has = {
        "tensor parallel": features.tensor_parallel, "sequence parallel": features.sequence_parallel,
        "context parallel": features.context_parallel and bool(features.context_kinds),
        "pipeline": features.pipeline_parallel, "expert parallel": experts,
        "virtual stages": features.pipeline_parallel and bool({"interleaved", "dualpipev"} & set(features.schedules)),
        "uneven stages": features.pipeline_parallel and features.uneven_stages,
        "expert tensor parallel": experts and features.expert_tensor_parallel,
        "recompute lists": features.recompute_per_stage and features.pipeline_parallel,
        "mixed recompute": features.recompute_mixed and features.pipeline_parallel,
        "selective recompute": "selective" in features.recompute, "full recompute": "full" in features.recompute,
        "optimizer sharding": 1 in features.zero_stages, "sharded parameters": bool({2, 3} & set(features.zero_stages)),
        "partial sharding": features.partial_sharding, "offload": features.optimizer_offload,
    }
    return tuple(name for name in FEATURES if has.get(name, True))


@cache
def cases(name: str) -> tuple[Case, ...]:
    """Cases that a framework (``name``, or ``name@version``) trains: models of each sort that it can run, of several sizes."""
    framework = framework_named(name)
    found = []
    for model in MODELS:
        for device in DEVICES:
            for devices, batch, sequence in ((16, 64, 2048), (64, 256, 4096), (48, 96, 2048), (128, 512, 8192)):
                try:
                    case = make_case(
                        model, cluster_for(device, num_devices=devices), global_batch_sequences=batch, sequence_tokens=sequence,
                        task=framework.features.tasks[0], framework=name, calibration="none",
                    )
                except InputError:
                    continue
                plain = Layout(data_parallel=devices, num_microbatches=batch // devices)
                if {message.path for message in framework.check(case, plain)} & {"model", "training", "cluster"}:
                    continue
                found.append(case)
    return tuple(found)


def legal_plans(
    name: str, count: int, *, seed: int = 0, feature: str | None = None, tries: int = TRIES
) -> Iterator[tuple[Case, Layout]]:
    """``count`` plans that the framework's features and limits allow, with a feature where one is named.

    Errors: ``AssertionError`` where they cannot be found: the framework promises a feature that its limits never allow.
    """
    framework, rng, found = framework_named(name), random.Random(seed), 0
    for _ in range(count * tries):
        if found == count:
            return
        case, layout = draw_plan(framework, name, rng.choice, feature=feature)
        if is_legal(framework, case, layout) and (feature is None or FEATURES[feature](layout)):
            found += 1
            yield case, layout
    assert found == count, f"{name}: {found} of {count} plans with {feature or 'anything'} in {count * tries} draws"


def any_plans(name: str, count: int, *, seed: int = 0) -> Iterator[tuple[Case, Layout]]:
    """Plans whose arithmetic is right (world, global batch) and that may break any other rule."""
    framework, rng = framework_named(name), random.Random(seed)
    for index in range(count):
        case, layout = draw_plan(framework, name, rng.choice)
        if index % MIXED_EVERY == MIXED_EVERY - 1:
            treated = draw_mixed(case, framework.features, layout.pipeline_parallel, layout.virtual_stages, rng.choice)
            layout = replace(layout, recompute=treated)
        yield case, layout


def is_legal(framework: Framework, case: Case, layout: Layout) -> bool:
    """Whether features and limits allow a plan."""
    return not layout_refusals(case, framework.features, layout) and not framework.check(case, layout)


def draw_plan(framework: Framework, name: str, choose: Choose, *, feature: str | None = None) -> tuple[Case, Layout]:
    """A case and a layout whose knobs lie within the framework's features; rules between them may be broken."""
    known = cases(name)
    assert known, f"{name} trains none of {', '.join(MODELS)}"
    wanted = [case for case in known if case.model.is_moe] if feature and feature.startswith("expert") else known
    case = choose(wanted)
    return case, draw_layout(case, framework.features, choose, feature=feature)


def draw_layout(case: Case, features: Features, choose: Choose, *, feature: str | None = None) -> Layout:
    """A layout that fills the cluster and makes the global batch."""
    world, is_moe = case.cluster.num_devices, case.model.is_moe
    needs_stages = feature in {"pipeline", "virtual stages", "uneven stages", "recompute lists", "mixed recompute"}
    tp = choose((2, 4, 8)) if feature in {"tensor parallel", "sequence parallel"} else choose((1, 1, 2, 4, 8))
    tp = tp if features.tensor_parallel else 1
    pp = choose((2, 4, 8)) if needs_stages else choose((1, 1, 2, 4, 8)) if features.pipeline_parallel else 1
    if feature == "sharded parameters" and not features.parameter_shards_with_pipeline:
        pp = 1
    cp = choose((2, 4)) if feature == "context parallel" else choose((1, 1, 1, 2)) if features.context_parallel else 1
    while world % (tp * pp * cp):
        tp, pp, cp = (max(1, tp // 2), pp, cp) if tp > 1 else (tp, max(1, pp // 2), cp) if pp > 1 else (1, 1, 1)
    dp = world // (tp * pp * cp)
    chunks = [schedule for schedule in features.schedules if schedule in {"interleaved", "dualpipev"}]
    virtual = pp > 1 and bool(chunks) and (feature == "virtual stages" or choose((False, False, True)))
    schedule = choose(chunks) if virtual else choose([each for each in features.schedules if each not in chunks] or ["1f1b"])
    vp = (2 if schedule == "dualpipev" else choose((2, 3, 4))) if virtual else 1
    if pp == 1:
        schedule = "1f1b"
    mb = choose((1, 1, 2, 4))
    etp = choose((1, 1, tp)) if is_moe and features.expert_tensor_parallel else 1
    if feature == "expert tensor parallel":
        etp = tp
    stage = world // pp
    ep = (
        choose([size for size in (1, 2, 4, 8, 16) if stage % (size * etp) == 0] or [1])
        if is_moe and features.expert_parallel
        else 1
    )
    shards = _shards(dp, cp, pp, features, choose, feature)
    return Layout(
        tensor_parallel=tp, sequence_parallel=_sequence(tp, features, choose, feature), context_parallel=cp,
        context_kind=choose(features.context_kinds) if cp > 1 else "ring", pipeline_parallel=pp, virtual_stages=vp,
        expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp, **shards, microbatch_sequences=mb,
        num_microbatches=max(1, case.batch.global_batch_sequences // (dp * mb)),
        recompute=_recompute(case, features, pp, vp, choose, feature), schedule=schedule,
        stage_layers=_split(case, pp, vp, features, choose, feature),
        offload=("optimizer",) if features.optimizer_offload and (feature == "offload" or choose((False,) * 9 + (True,))) else (),
        overlap=_overlap(features, choose), attention=None, compiled=None,
    )


def _sequence(tp: int, features: Features, choose: Choose, feature: str | None) -> bool:
    """Sequence parallelism, where there is tensor parallelism to share."""
    if tp == 1 or not features.sequence_parallel:
        return False
    return features.sequence_parallel_with_tensor or feature == "sequence parallel" or choose((True, True, True, False))


def _shards(dp: int, cp: int, pp: int, features: Features, choose: Choose, feature: str | None) -> dict[str, int]:
    """Shard groups of a ZeRO stage that the framework has."""
    stages = [stage for stage in features.zero_stages if stage < 2 or pp == 1 or features.parameter_shards_with_pipeline]
    if feature == "sharded parameters":
        stages = [stage for stage in stages if stage >= 2] or stages
    if feature in {"optimizer sharding", "partial sharding"}:
        stages = [stage for stage in stages if stage == 1] or [stage for stage in stages if stage] or stages
    stage = choose(stages or [0])
    ranks = dp * cp if features.shards_over_context else dp
    partial = features.partial_sharding and (feature == "partial sharding" or choose((False, False, False, True)))
    size = ranks // 2 if partial and ranks % 2 == 0 and ranks > 2 else ranks
    return {
        "optimizer_shards": size if stage >= 1 else 1, "gradient_shards": size if stage >= 2 else 1,
        "parameter_shards": size if stage >= 3 else 1,
    }


def _recompute(case: Case, features: Features, pp: int, vp: int, choose: Choose, feature: str | None) -> Recompute:
    """Nothing, some modules, all layers, the first few, or a count for each stage and chunk."""
    kinds = list(features.recompute)
    if feature == "mixed recompute" or (features.recompute_mixed and pp > 1 and choose((False, False, False, True))):
        return draw_mixed(case, features, pp, vp, choose)
    if feature == "recompute lists" or (features.recompute_per_stage and pp > 1 and choose((False, False, False, True))):
        per_chunk = case.model.num_layers // (pp * vp)
        return Full(layers=tuple(tuple(choose(range(per_chunk + 1)) for _ in range(pp)) for _ in range(vp)))
    kind = {"selective recompute": "selective", "full recompute": "full"}.get(feature or "") or choose(kinds)
    if kind == "selective":
        modules = features.selective_modules
        return Selective(modules=tuple(sorted({choose(modules) for _ in range(choose((1, 1, 2)))})))
    if kind == "full":
        return Full(layers=choose((None, None, 1, 3)) if features.recompute_first_layers else None)
    return NoRecompute()


def draw_mixed(case: Case, features: Features, pp: int, vp: int, choose: Choose) -> Recompute:
    """Counts by chunk and stage of some layers in full, some in part."""
    modules = features.selective_modules or ("core_attn",)
    left = [[case.model.num_layers // (pp * vp)] * pp for _ in range(vp)]
    parts: list[tuple[Selective | Full, tuple[tuple[int, ...], ...]]] = []
    for treatment in (Full(), Selective(modules=modules), Selective(modules=(choose(modules),))):
        counts = tuple(tuple(choose(range(layers + 1)) for layers in row) for row in left)
        if choose((True, True, False)) and treatment not in dict(parts):
            left = [[layers - count for layers, count in zip(row, own, strict=True)] for row, own in zip(left, counts, strict=True)]
            parts.append((treatment, counts))
    return mixed(parts, even_split(case.model.num_layers, pp, vp))


def _split(
    case: Case, pp: int, vp: int, features: Features, choose: Choose, feature: str | None
) -> tuple[tuple[int, ...], ...] | None:
    """Layers by chunk and stage, one of them moved; None: as the framework splits by itself."""
    if pp == 1 or not features.uneven_stages or not (feature == "uneven stages" or choose((False, False, False, True))):
        return None
    flat = [count for chunk in even_split(case.model.num_layers, pp, vp) for count in chunk]
    if flat[0] > 1:
        flat[0] -= 1
        flat[choose(range(1, len(flat)))] += 1
    return tuple(tuple(flat[chunk * pp : (chunk + 1) * pp]) for chunk in range(vp))


def _overlap(features: Features, choose: Choose) -> Overlap:
    """Switches that the framework has; the others off."""
    often, seldom = (True, True, True, False), (False, False, False, True)
    on = {word: word in features.overlaps and choose(seldom if word in {"tp", "ep"} else often) for word in
          ("grad", "param", "tp", "p2p", "ep")}
    return Overlap(
        gradient_reduce=on["grad"], parameter_gather=on["param"], tensor=on["tp"], point_to_point=on["p2p"], expert=on["ep"]
    )
