"""What MindSpeed-LLM (Megatron-LM core 0.12.1 with MindSpeed) refuses of a case and a layout, in its own words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Mixed, Selective
from meshwright.frameworks.ascend.arithmetic import arithmetic, expressible
from meshwright.frameworks.ascend.refusals import refusals
from meshwright.frameworks.ascend.stages import shape_of, split_of
from meshwright.frameworks.mindspeed_llm.writing import ACTIVATION, apart, numbers
from meshwright.frameworks.rules import rule, values_if

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.rules import Words

WORDS: Words = {
    "world": ("world size ({devices}) is not divisible by total_model_size (tp {tp} x cp {cp} x pp {pp}), or "
              "leaves another dp than {dp}", "parse"),
    "batch": ("global batch size ({batch}) is not divisible by micro batch size ({mb}) times data parallel size ({dp})", "parse"),
    "heads": ("num_attention_heads ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).", "parse"),
    "key-value-heads": ("num_query_groups ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).", "parse"),
    "sequence": ("sequence length must be divisible by 2 * context_parallel_size ({sequence}, cp {cp}), and by tp {tp}", "parse"),
    "experts": ("Number of experts should be a multiple of expert model parallel_size. ({experts}, {ep})", "parse"),
    "expert-grid": ("world_size is not divisible by expert_tensor_model_pipeline_parallel size: ep {ep}, {stage} "
                    "ranks of a stage", "start"),
    "interleaved": ("number of micro-batches ({m}) is no multiple of pipeline-model-parallel size ({pp})", "step"),
}


def limits(name: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule, with identifiers of one framework (MindSpeed-Core-MS has the same flags since r0.2.0)."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{name}.alibi-context", "Context parallelism is not supported with alibi", noticed="parse")
    def _alibi(case: Case, layout: Layout) -> Values | None:
        return values_if(case.model.position == "alibi" and layout.context_parallel > 1)

    @add(f"{name}.overlap-param", "Must use --overlap-param-gather with --overlap-grad-reduce")
    def _param(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.overlap.parameter_gather and not layout.overlap.gradient_reduce)

    @add(f"{name}.overlap-optimizer", "--overlap-param-gather only supported with distributed optimizer")
    def _gather(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.overlap.parameter_gather and layout.zero_stage == 0)

    @add(f"{name}.overlap-tensor", "mc2 needs tensor parallelism with sequence parallelism", noticed="never")
    def _tensor(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.overlap.tensor and not (layout.sequence_parallel and layout.tensor_parallel > 1))

    @add(f"{name}.sequence-without-tensor", "sequence parallelism is switched off with tensor parallelism 1", noticed="never")
    def _sequence(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.sequence_parallel and layout.tensor_parallel == 1)

    @add(f"{name}.swap-optimizer", "Swap-optimizer only support use_distributed_optimizer/use_layer_wise_distributed_optimizer")
    def _swap(case: Case, layout: Layout) -> Values | None:
        return values_if("optimizer" in layout.offload and layout.zero_stage == 0)

    @add(f"{name}.stage-empty", "a stage without layers: {split}", noticed="never")
    def _empty(case: Case, layout: Layout) -> Values | None:
        split = split_of(case, layout)
        return values_if(any(count < 1 for row in split for count in row), split=split)

    @add(f"{name}.pipeline-interleaved", "with one stage there is nothing to interleave: pp 1, vpp {vpp}")
    def _one(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.pipeline_parallel == 1 and layout.virtual_stages > 1, vpp=layout.virtual_stages)

    @add(
        f"{name}.p2p",
        "When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size should be "
        "greater than 2 to avoid having multiple p2p sends and recvs between same 2 ranks per communication batch",
    )
    def _p2p(case: Case, layout: Layout) -> Values | None:
        broken = layout.schedule == "interleaved" and not layout.overlap.point_to_point and layout.pipeline_parallel <= 2
        return values_if(broken)

    for identifier, words, broken in _DUALPIPEV:
        add(f"{name}.dualpipev-{identifier}", words)(partial(_under_dualpipev, broken))

    @add(f"{name}.moe-act", "moe_act in recompute_modules is only supported with moe_grouped_gemm: {model} has no experts")
    def _moe_act(case: Case, layout: Layout) -> Values | None:
        wanted = isinstance(layout.recompute, Selective) and {"moe_act", "moe"} & set(layout.recompute.modules)
        return values_if(wanted and not case.model.is_moe, model=case.model.name)

    @add(f"{name}.mla-up-proj", "mla_up_proj in recompute_modules is only supported with multi_latent_attention: {model} has none")
    def _latent(case: Case, layout: Layout) -> Values | None:
        wanted = isinstance(layout.recompute, Selective) and "mla_up_proj" in layout.recompute.modules
        return values_if(wanted and not any(kind.attention.latent for kind in case.model.kinds), model=case.model.name)

    @add(f"{name}.activation-function", "--recompute-activation-function takes dense layers and experts together", noticed="never")
    def _activation(case: Case, layout: Layout) -> Values | None:
        modules = set(getattr(layout.recompute, "modules", ()))
        return values_if("mlp_act" in modules and not set(apart(case.model)[ACTIVATION]) <= modules)

    @add(f"{name}.recompute-numbers", "flags have one number of layers for all chunks, in full and behind those of the activation "
                                      "function and of the norms",
         noticed="never")
    def _numbers(case: Case, layout: Layout) -> Values | None:
        shaped = layout.stage_layers is None or shape_of(layout.stage_layers) == (layout.virtual_stages, layout.pipeline_parallel)
        return values_if(isinstance(layout.recompute, Mixed) and (not shaped or numbers(case, layout) is None))

    @add(f"{name}.recompute-uneven", "behind full layers, flags count as if each chunk had the same number of layers, not {split}",
         noticed="never")
    def _uneven(case: Case, layout: Layout) -> Values | None:
        split = split_of(case, layout)
        uneven = len({count for row in split for count in row}) > 1 or layout.schedule == "dualpipev"
        return values_if(isinstance(layout.recompute, Mixed) and uneven, split=split)

    return (*refusals(name, title, features), *found, *expressible(name, title, features), *arithmetic(name, WORDS))


_DUALPIPEV: tuple[tuple[str, str, Callable[[Case, Layout], object]], ...] = (
    ("overlap", "The dualpipev and overlap_grad_reduce are incompatible.", lambda _, layout: layout.overlap.gradient_reduce),
    ("tied", "The dualpipev requires untie_embeddings_and_output_weights.", lambda case, _: case.model.tied_embeddings),
    ("context", "The dualpipev and context_parallel are incompatible.", lambda _, layout: layout.context_parallel > 1),
    ("one-stage", "pipeline_model_parallel_size should be larger than 1 with dualpipev schedules",
     lambda _, layout: layout.pipeline_parallel == 1),
    ("few-layers", "number of layers must be at least 2*pipeline_model_parallel_size in dualpipe",
     lambda case, layout: case.model.num_layers < 2 * layout.pipeline_parallel),
    ("micro-batches", "num_micro_batch should more than pipeline_model_parallel_size * 2 - 1",
     lambda _, layout: layout.num_microbatches < 2 * layout.pipeline_parallel - 1),
)
"""Rules of the folded pipeline: name, the framework's words, where it is broken."""


def _under_dualpipev(broken: Callable[[Case, Layout], object], case: Case, layout: Layout) -> Values | None:
    """A rule of the folded pipeline, which binds no other schedule."""
    return values_if(layout.schedule == "dualpipev" and broken(case, layout))
