"""What picotron refuses of a case and a layout, in its own words (commit 59714b1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import NoRecompute
from meshwright.domain.model import Mlp
from meshwright.frameworks.rules import attention_of, rule, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values

LIMITS: list[Limit] = []
_rule = partial(rule, LIMITS)


@_rule("picotron.model", "picotron trains Llama only, which {model} is not: {reason}", noticed="never", path="model")
def _model(case: Case, layout: Layout) -> Values | None:
    model, kinds = case.model, case.model.kinds
    attention = kinds[0].attention
    reasons = [
        (model.is_moe, "it has experts"),
        (len(kinds) > 1, "its layers differ"),
        (attention.latent is not None, "its attention is latent"),
        (attention.window_tokens is not None, "its attention has a window"),
        (model.position != "rope", f"its positions are {model.position}"),
        (attention.query_bias or attention.key_value_bias or attention.output_bias, "its projections have biases"),
        (attention.query_key_norm != "none", "it normalises queries and keys"),
        (attention.head_dim * attention.num_heads != model.hidden, "its heads together are not as wide as its hidden size"),
        (model.tied_embeddings, "its embeddings are tied"),
        (isinstance(kinds[0].feed_forward, Mlp) and not kinds[0].feed_forward.gated, "its MLP is not gated"),
        (model.norm != "rms", f"its norm is {model.norm}"),
    ]
    return words_if("reason", reasons, between="; ", model=model.name)


@_rule("picotron.task", "picotron pretrains only, not {task}", noticed="never", path="training")
def _task(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.task != "pretrain", task=case.training.task)


@_rule("picotron.precision", "picotron computes in bf16 only, not {precision}", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name != "bf16", precision=case.training.precision.name)


@_rule("picotron.optimizer", "picotron has AdamW only, not {optimizer}", noticed="never", path="training")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.optimizer.name != "adamw", optimizer=case.training.optimizer.name)


@_rule("picotron.knobs", "picotron has no key for {knobs}", noticed="never")
def _knobs(case: Case, layout: Layout) -> Values | None:
    has = [
        (layout.sequence_parallel, "sequence parallelism"),
        (layout.virtual_stages > 1, "virtual stages"),
        (layout.expert_parallel * layout.expert_tensor_parallel > 1, "expert parallelism"),
        (layout.zero_stage > 0, "ZeRO"),
        (not isinstance(layout.recompute, NoRecompute), "recomputation"),
        (bool(layout.offload), "offload"),
        (layout.context_parallel > 1 and layout.context_kind != "ring", f"{layout.context_kind} context parallelism"),
        (layout.schedule not in {"1f1b", "gpipe"}, f"the schedule {layout.schedule}"),
        (layout.stage_layers is not None and layout.stage_layers != (even_layers(case, layout),), "layers by stage"),
    ]
    return words_if("knobs", has)


def even_layers(case: Case, layout: Layout) -> tuple[int, ...]:
    """Layers of each stage: the remainder goes to the first stages (``PipelineParallel.distribute_layers``)."""
    count, rest = divmod(case.model.num_layers, layout.pipeline_parallel)
    return tuple(count + (stage < rest) for stage in range(layout.pipeline_parallel))


@_rule("picotron.layers", "Some ranks has no layers. There are too many ranks and not enough layers to distribute.",
       noticed="start")
def _layers(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.num_layers < layout.pipeline_parallel)


@_rule("picotron.sequence", "seq_length must be divisible by cp_size for Context Parallelism")
def _sequence(case: Case, layout: Layout) -> Values | None:
    return values_if(case.batch.sequence_tokens % layout.context_parallel)


@_rule("picotron.heads", "num_attention_heads should be divisible by tp world size", noticed="start")
def _heads(case: Case, layout: Layout) -> Values | None:
    return values_if(attention_of(case).num_heads % layout.tensor_parallel)


@_rule("picotron.key-value-heads", "num_key_value_heads should be divisible by  tp world size", noticed="start")
def _key_value_heads(case: Case, layout: Layout) -> Values | None:
    return values_if(attention_of(case).num_key_value_heads % layout.tensor_parallel)


@_rule("picotron.width", "Hidden dimension must be divisible by the tensor parallel world size", noticed="start")
def _width(case: Case, layout: Layout) -> Values | None:
    block = case.model.kinds[0].feed_forward
    return values_if(isinstance(block, Mlp) and block.width % layout.tensor_parallel)


@_rule("picotron.vocabulary", "{vocabulary} is not divisible by {tp}", noticed="start")
def _vocabulary(case: Case, layout: Layout) -> Values | None:
    rows, tp = case.model.vocabulary, layout.tensor_parallel
    return values_if(rows % tp, vocabulary=rows, tp=tp)
