"""What is to be trained, on how much, in which numbers: the part of a case that a search never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from meshwright.errors import InputError, Message
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.cluster import Device

Task = Literal["pretrain", "sft", "lora"]


class Packing(Value, frozen=True, kw_only=True):
    """What stands in the sequences of a batch that are packs of samples; means over the step."""

    samples_per_sequence: float
    mean_sample_tokens: float
    longest_sample_tokens: int


class Batch(Value, frozen=True, kw_only=True):
    """Sequences and tokens of one optimizer step."""

    global_batch_sequences: int
    sequence_tokens: int
    mean_square_document_tokens: float | None = None
    """Packed documents: mean over sequences of the sum of squared document lengths; None: one document a sequence."""
    packing: Packing | None = None
    """None: every sequence is one sample of its full length, or what is packed is not known."""

    def __post_init__(self) -> None:
        messages = [
            Message("batch.positive", "{field}={value} must be at least 1", {"field": name, "value": value}, path="batch")
            for name, value in (("global_batch", self.global_batch_sequences), ("sequence", self.sequence_tokens))
            if value < 1
        ]
        if messages:
            raise InputError(messages)

    @property
    def tokens(self) -> int:
        """Tokens per optimizer step, padding included."""
        return self.global_batch_sequences * self.sequence_tokens

    @property
    def samples(self) -> float:
        """Samples per optimizer step."""
        return self.global_batch_sequences * (self.packing.samples_per_sequence if self.packing else 1.0)

    @property
    def padding_ratio(self) -> float:
        """Share of the tokens that is padding behind the samples of a pack."""
        packing = self.packing
        return 1.0 - packing.samples_per_sequence * packing.mean_sample_tokens / self.sequence_tokens if packing else 0.0

    @property
    def trained_tokens(self) -> float:
        """Tokens per optimizer step without padding."""
        return self.tokens * (1.0 - self.padding_ratio)


class Precision(Value, frozen=True, kw_only=True):
    """A precision recipe: what matrices compute in, what is kept for backward and what the optimizer keeps."""

    name: str
    gemm_dtype: str
    """Data type of the matrix units (key of ``Device.peak_flops_per_s``) in the layers' linear projections."""
    base_dtype: str
    """Data type of everything that stays out of the recipe: attention core, router, embedding, head."""
    parameter_bytes: float
    """Bytes of a model weight that is computed with."""
    saved_input_bytes: float
    """Bytes per element of a linear layer's input kept for backward."""
    gather_bytes: float
    """Bytes per element of a gathered parameter (FP8 parameter gather: 1)."""
    gradient_bytes: float = 4.0
    master_bytes: float = 4.0
    """Bytes of the optimizer's own copy of a weight; 0 where the model weight itself is FP32."""
    weight_cast_bytes: float = 0.0
    """Bytes per updated weight that the optimizer step holds where the weights themselves are FP8 (parameter gather in FP8): master
    weights are cast to the base data type, all of them at once, before they are quantised."""
    cast_passes: float = 0.0
    """Times that each operand of a low-precision GEMM is read and written to be scaled and quantised, and transposed."""
    expert_product_kernels: float = 1.0
    """Kernels of one product of one expert: 2 where a scale is computed for each."""
    expert_cast_kernels: float = 0.0
    """Kernels that quantise an operand of one expert: 0 in BF16, and where one kernel quantises for all experts."""
    families: tuple[str, ...] = ()
    """Device families that run the recipe; empty: all with its data types."""
    bf16_edge_layers: int = 0
    """Layers at each end that stay in the base data type (NVFP4 recipes)."""
    source: str = ""

    def runs_on(self, device: Device) -> bool:
        """Whether the device has the recipe's data types, and is of a family that runs it."""
        able = device.supports(self.gemm_dtype) and device.supports(self.base_dtype)
        return able and (not self.families or device.family in self.families)


class Optimizer(Value, frozen=True, kw_only=True):
    """An optimizer by its state: bytes per parameter beside the master copy, and FLOP per parameter."""

    name: str
    state_bytes: float
    """Moments: AdamW 8, AdamW with BF16 moments 4, SGD with momentum 4, Muon 4."""


class Lora(Value, frozen=True, kw_only=True):
    """Low-rank adapters: rank, and the projections that carry them."""

    rank: int = 16
    targets: tuple[str, ...] = ("query", "key", "value", "output", "mlp")


class Training(Value, frozen=True, kw_only=True):
    """Task, numbers and length of a training run."""

    task: Task
    precision: Precision
    optimizer: Optimizer
    lora: Lora | None = None
    balanced_routing: bool = False
    """Routing is forced to be balanced, or padded to a capacity (benchmarks): no expert waits for a fuller one."""
    tokens: float | None = None
    """Tokens to train on, where time and cost of the whole run are asked for."""

    def __post_init__(self) -> None:
        if (self.task == "lora") != (self.lora is not None):
            raise InputError(
                Message(
                    "training.lora",
                    "task {task!r} and lora={lora} contradict each other",
                    {"task": self.task, "lora": self.lora},
                    path="training",
                )
            )

    @property
    def weights_frozen(self) -> bool:
        """The base weights have no gradient, no optimizer state and no weight-gradient work."""
        return self.task == "lora"
