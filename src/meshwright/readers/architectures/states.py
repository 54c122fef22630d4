"""State-space models alone: Mamba, Falcon-Mamba, Mamba-2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.mixers import Mamba, Mamba2
from meshwright.domain.model import LayerKind, Model
from meshwright.readers.architectures.parts import reads
from meshwright.readers.architectures.stacks import of_layers

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


def _inner(fields: Fields, hidden: int) -> int:
    """Channels inside a layer."""
    return fields.size("intermediate_size", "d_inner", default=fields.size("expand", default=2) * hidden)


@reads("MambaForCausalLM", "mamba", "FalconMambaForCausalLM", "falcon_mamba")
def mamba(fields: Fields) -> Model:
    """Mamba and Falcon-Mamba, which norms step, B and C without weights."""
    hidden, layers = fields.size("hidden_size", "d_model"), fields.layers("num_hidden_layers", "n_layer")
    rank = fields.data.get("time_step_rank")
    mixer = Mamba(
        width=_inner(fields, hidden), state_dim=fields.size("state_size", default=16),
        step_rank=-(-hidden // 16) if rank in (None, "auto") else fields.size("time_step_rank"),
        convolution=fields.size("conv_kernel", default=4), convolution_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("use_bias", default=False),
    )
    return of_layers(fields, [LayerKind(mixer=mixer, norms=1)] * layers, hidden=hidden, position="none", tied=True)


@reads("Mamba2ForCausalLM", "mamba2")
def mamba2(fields: Fields) -> Model:
    """Mamba-2, and Codestral Mamba as transformers has it."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    heads, dim = fields.size("num_heads", default=128), fields.size("head_dim", default=64)
    if heads * dim != _inner(fields, hidden):
        fields.fault("num_heads", "config.contradiction", "{heads} heads of {dim} are not the inner width {inner}",
                     heads=heads, dim=dim, inner=_inner(fields, hidden))
    mixer = Mamba2(
        num_heads=heads, head_dim=dim, state_dim=fields.size("state_size", default=128),
        num_groups=fields.size("n_groups", default=8), convolution=fields.size("conv_kernel", default=4),
        convolution_bias=fields.flag("use_conv_bias", default=True), bias=fields.flag("use_bias", default=False),
        chunk_tokens=fields.size("chunk_size", default=256),
    )
    return of_layers(fields, [LayerKind(mixer=mixer, norms=1)] * layers, hidden=hidden, position="none")
