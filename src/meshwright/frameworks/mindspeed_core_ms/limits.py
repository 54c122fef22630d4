"""What MindSpeed-Core-MS r0.1.0 refuses of a case and a layout, in its own words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.arithmetic import arithmetic, expressible
from meshwright.frameworks.ascend.stages import counts_of, experts_everywhere, split_of
from meshwright.frameworks.rules import rule, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.ascend.arithmetic import Words
    from meshwright.frameworks.base import Limit, Values

WORDS: Words = {
    "heads": ("{heads} is not divisible by {tp}", "start"),
    "key-value-heads": ("{heads} is not divisible by {tp}", "start"),
    "width": ("{width} is not divisible by {tp}", "start"),
    "layers": ("The number of model layers is {layers}, but using pipeline parallel requires at least "
               "'pp({pp}) * vpp({vpp}) = {places}' layers for splitting", "start"),
    "stage-shape": ("The shape of num_layer_list {shape} must equal to pp_layout {layout}", "start"),
    "stage-sum": ("The number of model layers is {layers}, but the sum of num_layer_list  {split} is {total}.", "start"),
    "recompute-shape": ("The shape of recompute_num_list {shape} must equal to pp_layout {layout}", "start"),
    "interleaved": ("When using pipeline with interleaved, the 'num_microbatches' must be divisible by pipeline "
                    "world size.", "step"),
    "schedule": ("pipeline-model-parallel size should be greater than 1 with interleaved schedule", "start"),
}  # fmt: skip


def model_limits(prefix: str, title: str) -> tuple[Limit, ...]:
    """Models, tasks and numbers that the YAML surface of MindSpeed-Core-MS cannot say."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{prefix}.model", f"{title} has no {{model}}: {{reason}}", noticed="never", path="model")
    def _model(case: Case, layout: Layout) -> Values | None:
        model, attention = case.model, case.model.kinds[0].attention
        biases = {attention.query_bias, attention.key_value_bias}
        reasons = [
            (any(kind.attention.latent for kind in model.kinds), "latent attention"),
            (any(kind.attention.window_tokens for kind in model.kinds), "attention windows"),
            (any(kind.attention.sinks for kind in model.kinds), "attention sinks"),
            (attention.query_key_norm != "none", "normalised queries and keys"),
            (len(biases) > 1, "biases of queries only"),
            (model.is_moe and not experts_everywhere(model), "dense layers among experts"),
            (any(kind.experts and kind.experts.shared_width for kind in model.kinds), "shared experts"),
            (not model.is_moe and len({kind.feed_forward for kind in model.kinds}) > 1, "layers that differ"),
            (any(kind.parallel_block or kind.norms != 2 for kind in model.kinds), "other blocks than pre-norm"),
            (model.num_mtp_layers > 0, "multi-token prediction"),
            (model.position not in {"rope", "learned"}, f"{model.position} positions"),
            (model.norm not in {"rms", "layer"}, f"the norm {model.norm}"),
            (model.embedding_norm or model.head_bias or model.embedding_width is not None, "that embedding or head"),
            (model.rotary_ratio != 1.0, "rotary positions on a part of the head"),
        ]
        wrong = [reason for broken, reason in reasons if broken]
        return values_if(wrong, model=model.name, reason=", ".join(wrong))

    @add(f"{prefix}.numbers", f"{title} trains with AdamW in bf16 or fp16, not {{optimizer}} in {{precision}}",
         noticed="never", path="training")  # fmt: skip
    def _numbers(case: Case, layout: Layout) -> Values | None:
        training = case.training
        able = training.precision.name in {"bf16", "fp16"} and training.optimizer.name == "adamw"
        return values_if(not able, optimizer=training.optimizer.name, precision=training.precision.name)

    @add(f"{prefix}.device", f"{title} runs on Ascend, not on {{device}}", noticed="start", path="cluster")
    def _device(case: Case, layout: Layout) -> Values | None:
        family = case.cluster.device.family
        return values_if(not family.startswith("ascend"), device=case.cluster.device.name)

    return tuple(found)


def limits(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of r0.1.0 (and of MindFormers experimental, its ancestor)."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{prefix}.stage-empty", "All elements of num_layer_list should be larger than 0, but got {split}.", noticed="start")
    def _empty(case: Case, layout: Layout) -> Values | None:
        split = layout.stage_layers or ()
        return values_if(any(count < 1 for row in split for count in row), split=split)

    @add(f"{prefix}.recompute-negative", "recompute_num_array has element < 0", noticed="start")
    def _negative(case: Case, layout: Layout) -> Values | None:
        counts = getattr(layout.recompute, "layers", None)
        return values_if(isinstance(counts, tuple) and any(count < 0 for row in counts for count in row))

    @add(f"{prefix}.recompute-sum",
         "Recompute layers must less or equal num layers, but got select_comm_recompute_layers 0 + "
         "full_recompute_layers {full} > num_layers {layers}.",
         noticed="start")  # fmt: skip
    def _sum(case: Case, layout: Layout) -> Values | None:
        split = split_of(case, layout)
        counts = counts_of(layout.recompute, split)
        over = [
            (full, layers) for row, chunk in zip(counts, split, strict=False)
            for full, layers in zip(row, chunk, strict=False) if full > layers
        ]  # fmt: skip
        return values_if(over, full=over[0][0] if over else 0, layers=over[0][1] if over else 0)

    @add(f"{prefix}.expert-data", "data_parallel_size ({dp}) is not divisible by expert_model_parallel_size", noticed="start")
    def _expert_data(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.data_parallel % layout.expert_parallel, dp=layout.data_parallel)

    @add(f"{prefix}.expert-context", "combination of expert model prallellism and context parallelism is not supported",
         noticed="start")  # fmt: skip
    def _expert_context(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.expert_parallel > 1 and layout.context_parallel > 1)

    @add(f"{prefix}.zero-parallel",
         "Accuracy is not guaranteed when zero is used with parallel strategies other than data parallel and tensor parallel.",
         noticed="never")  # fmt: skip
    def _zero_parallel(case: Case, layout: Layout) -> Values | None:
        others = layout.sequence_parallel or layout.pipeline_parallel * layout.expert_parallel * layout.context_parallel > 1
        return values_if(layout.zero_stage >= 2 and others)

    @add(f"{prefix}.zero3-pipeline", "DDP ZeRO3 is not compatible with pipeline parallel. Please check the configuration.",
         noticed="start")  # fmt: skip
    def _zero3(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.zero_stage == 3 and layout.pipeline_parallel > 1)

    @add(f"{prefix}.sequence-without-tensor", "sequence_parallel needs tensor parallelism: with one rank there is nothing to cut",
         noticed="never")  # fmt: skip
    def _sequence(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.sequence_parallel and layout.tensor_parallel == 1)

    return (*model_limits(prefix, title), *expressible(prefix, title, features), *found, *arithmetic(prefix, WORDS))
