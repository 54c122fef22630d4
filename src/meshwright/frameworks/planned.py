"""A case with a layout under the words of labels: what the rows of limits compare, and what fills their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.domain.layout import Selective

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout


class Planned(Struct, frozen=True):
    """A case, a layout for it, and the release of the framework that is to run them."""

    case: Case
    layout: Layout
    release: str = ""

    # Degrees and counts.

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""
        return self.layout.tensor_parallel

    @property
    def cp(self) -> int:
        """Context-parallel ranks."""
        return self.layout.context_parallel

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return self.layout.pipeline_parallel

    @property
    def vp(self) -> int:
        """Chunks of a stage."""
        return self.layout.virtual_stages

    @property
    def ep(self) -> int:
        """Expert-parallel ranks."""
        return self.layout.expert_parallel

    @property
    def etp(self) -> int:
        """Tensor-parallel ranks of an expert."""
        return self.layout.expert_tensor_parallel

    @property
    def dp(self) -> int:
        """Replicas of the dense layers."""
        return self.layout.data_parallel

    @property
    def mb(self) -> int:
        """Sequences of a micro-batch."""
        return self.layout.microbatch_sequences

    @property
    def microbatches(self) -> int:
        """Micro-batches of a step and replica."""
        return self.layout.num_microbatches

    @property
    def world(self) -> int:
        """Devices of the layout."""
        return self.layout.world

    @property
    def ranks(self) -> int:
        """Ranks over which states can be sharded: data and context parallel."""
        return self.dp * self.cp

    # Other knobs.

    @property
    def sp(self) -> bool:
        """Sequence parallelism."""
        return self.layout.sequence_parallel

    @property
    def kind(self) -> str:
        """Kind of context parallelism."""
        return self.layout.context_kind

    @property
    def schedule(self) -> str:
        """Schedule of the pipeline."""
        return self.layout.schedule

    @property
    def zero(self) -> int:
        """ZeRO stage."""
        return self.layout.zero_stage

    @property
    def shards(self) -> tuple[int, int, int]:
        """Ranks that share optimizer state, gradients and parameters."""
        return self.layout.optimizer_shards, self.layout.gradient_shards, self.layout.parameter_shards

    @property
    def modules(self) -> frozenset[str]:
        """Modules that all layers recompute; none for any other recomputation."""
        return frozenset(self.layout.recompute.modules) if isinstance(self.layout.recompute, Selective) else frozenset()

    # The model.

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.case.model.name

    @property
    def moe(self) -> bool:
        """Whether the model has experts."""
        return self.case.model.is_moe

    @property
    def layers(self) -> int:
        """Layers, without those of multi-token prediction."""
        return self.case.model.num_layers

    @property
    def attention(self) -> Attention:
        """Attention of the first layer; frameworks run models whose layers are alike but for the window and the experts."""
        return self.case.model.attention

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.attention.num_heads

    @property
    def groups(self) -> int:
        """Key-value heads."""
        return self.attention.num_key_value_heads

    @property
    def experts(self) -> int:
        """Routed experts of a layer; 0 in a dense model."""
        return self.case.model.experts.num_experts if self.case.model.experts else 0

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        return self.case.model.vocabulary

    # The training.

    @property
    def batch(self) -> int:
        """Sequences of an optimizer step."""
        return self.case.batch.global_batch_sequences

    @property
    def sequence(self) -> int:
        """Tokens of a sequence."""
        return self.case.batch.sequence_tokens

    @property
    def task(self) -> str:
        """What is trained: pretrain, sft or lora."""
        return self.case.training.task

    @property
    def precision(self) -> str:
        """Name of the precision recipe."""
        return self.case.training.precision.name

    @property
    def gradients(self) -> str:
        """Data type that gradients accumulate in."""
        return "fp32" if self.case.training.precision.gradient_bytes >= 4 else "bf16"

    @property
    def optimizer(self) -> str:
        """Name of the optimizer."""
        return self.case.training.optimizer.name

    @property
    def device(self) -> str:
        """Name of the device."""
        return self.case.cluster.device.name
