"""What mixes the tokens of a layer in linear time instead of attention: a short convolution, a recurrence and its state.

Widths are in elements, counts are counts. Each kind answers the same few questions (``heads``, ``in_width``, ...), so that formulas
of memory and time read one table; what a kind has of its own (weights, work of the recurrence) is in ``perf.mixers``.
"""

from __future__ import annotations

from typing import TypeAlias

from meshwright.value import Value


class GatedDelta(Value, frozen=True, kw_only=True):
    """Gated delta net (Yang et al. 2024, arXiv 2412.06464), as in Qwen3-Next: one decay for each value head and token."""

    key_heads: int
    value_heads: int
    """A multiple of ``key_heads``: keys and queries are shared by so many value heads."""
    key_dim: int
    value_dim: int
    convolution: int = 4
    """Taps of the causal convolution over queries, keys and values."""
    chunk_tokens: int = 64
    """Tokens that the kernel works on at once; no result depends on it."""

    @property
    def heads(self) -> int:
        """Heads that have a state of their own."""
        return self.value_heads

    @property
    def groups(self) -> int:
        """The smallest number of parts into which the layer falls: what tensor parallelism must divide."""
        return self.key_heads

    @property
    def key_width(self) -> int:
        """All key heads together, as projected."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """All value heads together; the input of the output projection."""
        return self.value_heads * self.value_dim

    @property
    def convolved_width(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_width + self.value_width

    @property
    def gate_width(self) -> int:
        """The gate of the output."""
        return self.value_width

    @property
    def scalar_width(self) -> int:
        """Strength of the update and decay, one each for a head."""
        return 2 * self.value_heads

    @property
    def state_elements(self) -> int:
        """Elements of the state of one sequence."""
        return self.value_heads * self.key_dim * self.value_dim


class KimiDelta(Value, frozen=True, kw_only=True):
    """Kimi delta attention (Kimi Linear, arXiv 2510.26692): a gated delta net with one decay for each channel of a key."""

    num_heads: int
    head_dim: int
    """Width of a query, key and value head."""
    convolution: int = 4
    decay_rank: int | None = None
    """Width through which the decay is projected; None: at once (Ring 2.5)."""
    gate_rank: int | None = None
    """The same of the output's gate."""
    chunk_tokens: int = 64

    @property
    def heads(self) -> int:
        """Heads that have a state of their own."""
        return self.num_heads

    @property
    def groups(self) -> int:
        """What tensor parallelism must divide."""
        return self.num_heads

    @property
    def key_width(self) -> int:
        """All key heads together."""
        return self.num_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """All value heads together; the input of the output projection."""
        return self.num_heads * self.head_dim

    @property
    def convolved_width(self) -> int:
        """Channels of the convolutions: queries, keys and values."""
        return 3 * self.key_width

    @property
    def gate_width(self) -> int:
        """The gate of the output, and the decay of each channel of the keys."""
        return self.value_width + self.key_width

    @property
    def scalar_width(self) -> int:
        """Strength of the update, one for a head."""
        return self.num_heads

    @property
    def state_elements(self) -> int:
        """Elements of the state of one sequence."""
        return self.num_heads * self.head_dim * self.head_dim


class Mamba2(Value, frozen=True, kw_only=True):
    """A Mamba-2 layer (Dao and Gu 2024, arXiv 2405.21060): a state-space model with one decay for each head and token."""

    num_heads: int
    head_dim: int
    state_dim: int
    num_groups: int = 1
    """Groups of heads that share B and C."""
    convolution: int = 4
    convolution_bias: bool = True
    bias: bool = False
    """Of the projections in and out."""
    norm: bool = True
    """A gated norm in front of the output projection (Falcon-H1 has only the gate)."""
    chunk_tokens: int = 256

    @property
    def heads(self) -> int:
        """Heads that have a state of their own."""
        return self.num_heads

    @property
    def groups(self) -> int:
        """What tensor parallelism must divide."""
        return self.num_groups

    @property
    def key_width(self) -> int:
        """B (or C) of all groups."""
        return self.num_groups * self.state_dim

    @property
    def value_width(self) -> int:
        """All heads together (``d_inner``); the input of the output projection."""
        return self.num_heads * self.head_dim

    @property
    def convolved_width(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.value_width + 2 * self.key_width

    @property
    def gate_width(self) -> int:
        """The gate of the output."""
        return self.value_width

    @property
    def scalar_width(self) -> int:
        """The step, one for a head."""
        return self.num_heads

    @property
    def state_elements(self) -> int:
        """Elements of the state of one sequence."""
        return self.value_width * self.state_dim


class Mamba(Value, frozen=True, kw_only=True):
    """A Mamba layer of the first kind (Gu and Dao 2023, arXiv 2312.00752), as in Jamba: a step for every channel."""

    width: int
    """Channels inside (``d_inner``)."""
    state_dim: int
    step_rank: int
    """Width through which the step of every channel is projected (``dt_rank``)."""
    convolution: int = 4
    convolution_bias: bool = True
    bias: bool = False
    inner_norms: bool = False
    """Norms on step, B and C (Jamba)."""
    chunk_tokens: int = 1
    """The scan has no chunks of products."""

    @property
    def heads(self) -> int:
        """Channels that have a state of their own."""
        return self.width

    @property
    def groups(self) -> int:
        """What tensor parallelism must divide."""
        return self.width

    @property
    def key_width(self) -> int:
        """B (or C), shared by all channels."""
        return self.state_dim

    @property
    def value_width(self) -> int:
        """The input of the output projection."""
        return self.width

    @property
    def convolved_width(self) -> int:
        """Channels of the convolution."""
        return self.width

    @property
    def gate_width(self) -> int:
        """The gate of the output."""
        return self.width

    @property
    def scalar_width(self) -> int:
        """Steps are no scalars of heads here; they come out of the convolved channels."""
        return 0

    @property
    def state_elements(self) -> int:
        """Elements of the state of one sequence."""
        return self.width * self.state_dim


class Lightning(Value, frozen=True, kw_only=True):
    """Lightning attention (arXiv 2401.04658; MiniMax-01, arXiv 2501.08313): linear attention with a fixed decay."""

    num_heads: int
    head_dim: int
    gate: bool = True
    """A gate on the output, projected from the layer's input."""
    norm: bool = True
    """A norm over all heads in front of the output projection."""
    query_key_norm: bool = False
    """One weight of head_dim for queries, one for keys (Ring-linear)."""
    chunk_tokens: int = 256

    @property
    def heads(self) -> int:
        """Heads that have a state of their own."""
        return self.num_heads

    @property
    def groups(self) -> int:
        """What tensor parallelism must divide."""
        return self.num_heads

    @property
    def key_width(self) -> int:
        """All key heads together."""
        return self.num_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """All value heads together; the input of the output projection."""
        return self.num_heads * self.head_dim

    @property
    def convolution(self) -> int:
        """There is no convolution."""
        return 0

    @property
    def convolved_width(self) -> int:
        """Queries, keys and values; nothing convolves them, an activation acts on them."""
        return 3 * self.key_width

    @property
    def gate_width(self) -> int:
        """The gate of the output."""
        return self.value_width if self.gate else 0

    @property
    def scalar_width(self) -> int:
        """The decay is fixed."""
        return 0

    @property
    def state_elements(self) -> int:
        """Elements of the state of one sequence."""
        return self.num_heads * self.head_dim * self.head_dim


class ShortConvolution(Value, frozen=True, kw_only=True):
    """A gated short convolution alone (LFM2): no recurrence beyond its taps."""

    width: int
    convolution: int = 3
    bias: bool = False
    chunk_tokens: int = 1

    @property
    def heads(self) -> int:
        """Channels that have a state of their own."""
        return self.width

    @property
    def groups(self) -> int:
        """What tensor parallelism must divide."""
        return self.width

    @property
    def key_width(self) -> int:
        """There are no keys."""
        return 0

    @property
    def value_width(self) -> int:
        """The input of the output projection."""
        return self.width

    @property
    def convolved_width(self) -> int:
        """Channels of the convolution."""
        return self.width

    @property
    def gate_width(self) -> int:
        """Gates in front of the convolution and behind it."""
        return 2 * self.width

    @property
    def scalar_width(self) -> int:
        """There are none."""
        return 0

    @property
    def state_elements(self) -> int:
        """The taps of one sequence that are behind."""
        return self.width * (self.convolution - 1)


Mixer: TypeAlias = GatedDelta | KimiDelta | Mamba2 | Mamba | Lightning | ShortConvolution
MIXERS: dict[str, type[Mixer]] = {
    "gated_delta": GatedDelta, "kimi_delta": KimiDelta, "mamba2": Mamba2, "mamba": Mamba, "lightning": Lightning,
    "short_convolution": ShortConvolution,
}
"""By the key under which a description of a model has them."""
MIXER_NAMES: dict[type[Mixer], str] = {
    GatedDelta: "gated delta net", KimiDelta: "Kimi delta attention", Mamba2: "Mamba-2", Mamba: "Mamba",
    Lightning: "lightning attention", ShortConvolution: "short convolution",
}
"""As people call them."""
