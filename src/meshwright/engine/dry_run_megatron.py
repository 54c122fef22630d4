"""megatron-core's own GPTModel as the subject of a dry run: local specification, on the processor."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from meshwright.domain.model import Mlp
from meshwright.engine.fake import processor_as_accelerator
from meshwright.engine.subject import Subject
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.engine.dry_run import Job


def subject(job: Job) -> Subject:
    """The model of one rank, BF16 throughout, and PyTorch's AdamW on it.

    Holds:   tensor and plain data parallelism of a dense model (PyTorch's norms refuse sequence parallelism there); gradients
             are not reduced, for that is the work of Megatron's distributed optimizer, which is not run.
    Errors:  InputError for what is not built here.
    """
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    model, layout = job.model, job.layout
    assert model is not None, "the command gives one"
    if layout.pipeline_parallel > 1 or layout.context_parallel > 1 or model.is_moe or layout.zero_stage or layout.sequence_parallel:
        raise fault(
            "dryrun.megatron",
            "megatron-core without Transformer Engine is run with tp and dp of a dense model here, without sp, shards, pp and cp",
        )
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

    processor_as_accelerator()
    get_cuda_rng_tracker().fork = lambda *_: nullcontext()  # no dropout, and an accelerator's random state is not to be had
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=layout.tensor_parallel, create_gloo_process_groups=False)
    built: Any = GPTModel(
        config=_config(model, job), transformer_layer_spec=get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=model.vocabulary, max_sequence_length=job.sequence_tokens, position_embedding_type="rope",
        share_embeddings_and_output_weights=model.tied_embeddings,
    )
    optimizer = torch.optim.AdamW(built.parameters(), foreach=True)
    shape = (layout.microbatch_sequences, job.sequence_tokens)
    tokens, places = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    mask = torch.ones(1, 1, job.sequence_tokens, job.sequence_tokens, dtype=torch.bool)

    def ahead() -> None:
        for _ in range(layout.num_microbatches):
            losses: Tensor = built(tokens, places, mask, labels=tokens)
            losses.mean().backward()  # type: ignore[no-untyped-call]

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return Subject([built], optimizer, (tokens, places, mask), ahead, update)


def _config(model: Model, job: Job) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    kind = model.kinds[0]
    block = kind.feed_forward
    assert isinstance(block, Mlp), "mixtures were refused"
    return TransformerConfig(
        num_layers=model.num_layers, hidden_size=model.hidden, num_attention_heads=model.attention.num_heads,
        num_query_groups=model.attention.num_key_value_heads, kv_channels=model.attention.head_dim, ffn_hidden_size=block.width,
        gated_linear_unit=block.gated, add_bias_linear=block.bias, normalization="RMSNorm", bf16=True, params_dtype=torch.bfloat16,
        activation_func=torch.nn.functional.silu if block.gated else torch.nn.functional.gelu,
        tensor_model_parallel_size=job.layout.tensor_parallel,
        use_cpu_initialization=True, attention_dropout=0.0, hidden_dropout=0.0, pipeline_dtype=torch.bfloat16,
    )
