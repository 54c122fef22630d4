"""What is known of a framework beside keys and rules: where it puts ranks, who sets its allocator up, what else helps memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading

CUDA, CUDA_NEW, NPU, MINDSPORE = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF", "MS_ALLOC_CONF"
"""Variables that allocators read: PyTorch's on GPUs under its old and its new name, on Ascend, and MindSpore's."""


class Remedy(Struct, frozen=True, kw_only=True):
    """What a framework has against memory that is no edit of a layout, and is not predicted."""

    phase: Literal["loss", "gather"]
    """Where memory runs out."""
    words: str
    key: str = ""
    """The switch that they are about; blank: they are said whatever the files hold."""
    harmful: bool = False
    """Where the switch is on, memory is larger."""


class PackingLimit(Struct, frozen=True, kw_only=True):
    """How a trainer packs samples into micro-batches, as its files say it."""

    key: str
    tokens: int
    longest_tokens: int
    """No sample is longer; a limit below it would not split it."""
    fullest: Callable[[int, Layout], int]
    """Tokens that the fullest micro-batch has under a limit."""
    bound: Callable[[Layout], int]
    """Tokens that no micro-batch has more of under the limit of the files, whatever the samples are."""


class EpisodeSaid(Struct, frozen=True, kw_only=True):
    """What files say of a step of reinforcement learning; None where only the run knows."""

    prompts: int | None
    responses: int | None
    """Of one prompt."""
    prompt_tokens: int | None
    """Of the longest prompt."""
    longest_response: int | None
    updates: int | None
    """Optimizer steps in which the samples of a step are gone through once."""
    epochs: int | None = None
    """How often they are."""
    old: bool
    reference: bool
    engine_tp: int | None
    engine_memory: float | None
    engine_running: int | None = None


class Facts(Struct, frozen=True, kw_only=True):
    """Facts of a framework, of which most are what PyTorch does by itself."""

    stages_inside_replicas: bool = False
    """Neighbouring ranks are neighbouring stages, and not replicas."""
    stages_inside_key: str = ""
    """The key that makes it so."""
    allocator: str = CUDA
    """Variable of its allocator on GPUs, where neither name is set."""
    ascend_allocator: str = NPU
    allocator_key: str = ""
    """The key of its files that sets the variable for the processes that it starts itself."""
    remedies: tuple[Remedy, ...] = ()
    guides: tuple[str, ...] = ()
    """Guides that speak of its own keys: beginnings of identifiers of their rules."""
    other_rules: frozenset[str] = frozenset()
    """Rules of those guides that mean other keys than its own."""
    fork_of: str = ""
    """The framework whose flags it takes beside its own."""
    signs: str = ""
    """For a fork: what its scripts name and the other's do not, as a regular expression without case."""
    actions: Mapping[str, str] = field(default_factory=dict)
    """Action -> keys, for frameworks of others; those of this package stand in ``actions.yaml``."""
    packing: Callable[[Reading], PackingLimit | None] | None = None
    """How its trainer packs; None where it never does, or where the files do not say it."""
    packed_tokens: Callable[[Reading], Callable[[Layout], int] | None] | None = None
    """What a micro-batch of a layout holds at most, where files count samples and pack them as they run under another sort of
    limit than ``packing``; None of files that do not."""
    episode: Callable[[Reading], EpisodeSaid | None] | None = None
    """The step of reinforcement learning that files start; None of files that start none."""


OF_ASCEND = r"ascend|(?<![a-z])npu(?![a-z])|mindspeed|mindspore|hccl|msrun"
"""What scripts for Ascend name."""
PLAIN = Facts()
FUSED_LOSS = Remedy(
    phase="loss", key="--cross-entropy-loss-fusion", words="--cross-entropy-loss-fusion keeps fewer copies of the logits"
)
"""The switch of Megatron-Core, and of what takes its arguments."""
