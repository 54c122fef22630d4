"""Linear mixers: their weights, products, and the work of convolution and recurrence, per kind.

Everything is linear in tokens, so packing and context parallelism change nothing but where the tokens are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from meshwright.domain.mixers import GatedDelta, KimiDelta, Lightning, Mamba, Mamba2, ShortConvolution
from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from meshwright.domain.mixers import Mixer


def mixer_weights(mixer: Mixer, hidden: int) -> tuple[int, int]:
    """Weights of a mixer that tensor ranks divide, and those that each of them has.

        in      h (convolved + gate + scalars)        out  value h
        taps    k convolved (+ convolved)             step, decay, skip: of each head (KDA: decay of each channel)

    Units:   parameters.
    Holds:   norms over a head are on every rank, as are the narrow sides of low-rank projections and biases of the last one.
    Source:  transformers 5.23 (Qwen3-Next, Kimi Linear, Nemotron-H, Jamba, MiniMax, LFM2), held to the last parameter by a test;
             Megatron-Core ssm/mamba_mixer.py and ssm/gated_delta_net.py for what is divided.
    """
    taps = mixer.convolution * mixer.convolved_width
    out = mixer.value_width * hidden
    match mixer:
        case GatedDelta():
            inside = hidden * (mixer.convolved_width + mixer.gate_width + mixer.scalar_width)
            return inside + taps + 2 * mixer.value_heads + out, mixer.value_dim
        case KimiDelta():
            split, copied = hidden * (mixer.convolved_width + mixer.scalar_width), mixer.head_dim
            for rank, width in ((mixer.decay_rank, mixer.key_width), (mixer.gate_rank, mixer.value_width)):
                split += (hidden if rank is None else rank) * width
                copied += 0 if rank is None else hidden * rank
            return split + taps + mixer.key_width + mixer.num_heads + out, copied
        case Mamba2():
            columns = mixer.convolved_width + mixer.gate_width + mixer.scalar_width
            split = hidden * columns + taps + 3 * mixer.num_heads + out
            split += (columns if mixer.bias else 0) + (mixer.convolved_width if mixer.convolution_bias else 0)
            split += mixer.value_width if mixer.norm else 0
            return split, hidden if mixer.bias else 0
        case Mamba():
            width, state, rank = mixer.width, mixer.state_dim, mixer.step_rank
            split = 2 * hidden * width + taps + width * (rank + 2 * state) + (rank + 1) * width + width * state + width + out
            split += (2 * width if mixer.bias else 0) + (width if mixer.convolution_bias else 0)
            return split, (hidden if mixer.bias else 0) + (rank + 2 * state if mixer.inner_norms else 0)
        case Lightning():
            split = hidden * (mixer.convolved_width + mixer.gate_width) + out
            copied = (mixer.value_width if mixer.norm else 0) + (2 * mixer.head_dim if mixer.query_key_norm else 0)
            return split, copied
        case ShortConvolution():
            split = hidden * 3 * mixer.width + taps + out
            split += 4 * mixer.width if mixer.bias else 0
            return split, hidden if mixer.bias else 0
        case _:
            assert_never(mixer)


def mixer_shapes(mixer: Mixer, hidden: int) -> tuple[tuple[str, Number, Number, bool, bool], ...]:
    """Products of a mixer with weights: name, input width, output width, whether TP divides the input, and the output.

    A narrow projection that no side is divided of runs on the shards of sequence parallelism.

    Units:   elements.
    Source:  Megatron-Core ssm/mamba_mixer.py (in_proj by columns, out_proj by rows); fla/layers/kda.py for the low-rank gates.
    """
    columns = mixer.convolved_width + mixer.gate_width + mixer.scalar_width
    out = ("mixer output", mixer.value_width, hidden, True, False)
    match mixer:
        case KimiDelta():
            rows: list[tuple[str, Number, Number, bool, bool]] = []
            ranks = ((mixer.decay_rank, mixer.key_width, "decay"), (mixer.gate_rank, mixer.value_width, "gate"))
            joined = mixer.convolved_width + mixer.scalar_width
            for rank, width, name in ranks:
                if rank is None:
                    joined += width
                else:
                    rows += [(f"mixer {name} down", hidden, rank, False, False), (f"mixer {name} up", rank, width, False, True)]
            return (("mixer input", hidden, joined, False, True), *rows, out)
        case Mamba():
            return (
                ("mixer input", hidden, columns, False, True),
                ("mixer step, B and C", mixer.width, mixer.step_rank + 2 * mixer.state_dim, True, False),
                ("mixer step", mixer.step_rank, mixer.width, False, True),
                out,
            )
        case GatedDelta() | Mamba2() | Lightning() | ShortConvolution():
            return (("mixer input", hidden, columns, False, True), out)
        case _:
            assert_never(mixer)


def recurrence_flops(mixer: Mixer) -> float:
    """Model FLOPs of convolution and recurrence of one token, forward, as frameworks print them: token by token, not by chunks.

        gated delta, KDA  8 H d_k d_v + 2 k convolved     (K K', V K', S (a (I - b K K')), S Q: four products of a state)
        Mamba, Mamba-2    7 d_inner N
        lightning         4 H d d                          (K V' and Q S)

    Units:   FLOP per token.
    Holds:   what Megatron-LM counts; it leaves Mamba's convolution out.
    Source:  Megatron-LM training.py num_floating_point_operations (gdn_layer_flops, mamba_layer_flops); MaxText the same for GDN.
    """
    taps = 2.0 * mixer.convolution * mixer.convolved_width
    match mixer:
        case GatedDelta() | KimiDelta():
            return 8.0 * mixer.state_elements + taps
        case Mamba2() | Mamba():
            return 7.0 * mixer.state_elements
        case Lightning():
            return 4.0 * mixer.state_elements
        case ShortConvolution():
            return taps + 2.0 * mixer.width
        case _:
            assert_never(mixer)


def chunk_flops(mixer: Mixer) -> tuple[float, float]:
    """FLOPs on matrix units of the chunked form of one token, forward and backward.

        scores in a chunk 2 C d_k,  scores times values 2 C d_v,  state in 2 d_k d_v,  state out 2 d_k d_v        per head
        Mamba-2: scores once per group of heads;   delta rules besides: K K' 2 C d_k, its inverse C^2, W and U 2 C (d_k + d_v)
        and W times the state 2 d_k d_v
        backward: twice the forward, and the chunk's intermediate results once more

    Symbols: C tokens of a chunk (``chunk_tokens``); d_k, d_v widths of a key and a value (Mamba: state and head).
    Units:   FLOP per token.
    Holds:   kernels compute the whole square of a chunk. Mamba-1 and short convolutions have no products here: they are bound by
             memory (passes of the implementation).
    Source:  Dao and Gu 2024 (arXiv 2405.21060) section 6; Yang et al. 2024 (arXiv 2406.06484) section 3 (WY form),
             flash-linear-attention chunk_gated_delta_rule.
    """
    c = float(mixer.chunk_tokens)
    match mixer:
        case Mamba2():
            n, p, heads = float(mixer.state_dim), float(mixer.head_dim), float(mixer.num_heads)
            forward = 2.0 * c * n * mixer.num_groups + heads * (2.0 * c * p + 4.0 * n * p)
            return forward, 3.0 * forward
        case Lightning():
            d, heads = float(mixer.head_dim), float(mixer.num_heads)
            forward = heads * (4.0 * c * d + 4.0 * d * d)
            return forward, 3.0 * forward
        case GatedDelta() | KimiDelta():
            wide, narrow, heads = (
                (float(mixer.value_dim), float(mixer.key_dim), float(mixer.value_heads))
                if isinstance(mixer, GatedDelta) else (float(mixer.head_dim), float(mixer.head_dim), float(mixer.num_heads))
            )
            inside = 2.0 * c * (narrow + wide) + 2.0 * c * narrow + c * c + 2.0 * c * (narrow + wide)
            forward = heads * (inside + 6.0 * narrow * wide)
            return forward, 3.0 * forward
        case Mamba() | ShortConvolution():
            return 0.0, 0.0
        case _:
            assert_never(mixer)


def mixer_kernels(mixer: Mixer) -> tuple[int, int]:
    """Kernels of convolution and recurrence, forward and backward, beside those that any block launches.

        Mamba-2      decays, chunk states, their passing, products of a chunk, scan, convolution; backward: all but the scan
                     again, gradients of each
        delta rules  norms of queries and keys, decays, K K', its inverse, W and U, states, output, convolution

    Units:   kernels.
    Source:  mamba_ssm ops/triton/ssd_combined.py; flash-linear-attention ops/gated_delta_rule/chunk.py, as of 2026.
    """
    match mixer:
        case Mamba2():
            return 6, 16
        case GatedDelta() | KimiDelta():
            return 9, 12
        case Lightning():
            return 3, 5
        case Mamba():
            return 2, 2
        case ShortConvolution():
            return 3, 5
        case _:
            assert_never(mixer)


def chunk_state_width(mixer: Mixer) -> float:
    """Elements of states between chunks, per token: what the kernel writes and, for delta rules, reads again.

        state / C;   0 where there are no chunks

    Units:   elements per token.
    Source:  flash-linear-attention chunk_gated_delta_rule_fwd_h (h of every chunk); mamba_ssm ssd_combined (states of every chunk).
    """
    return mixer.state_elements / mixer.chunk_tokens if mixer.chunk_tokens > 1 else 0.0


def mixer_heads(mixer: Mixer, tensor_parallel: Number) -> Array:
    """Heads with a state of their own on one tensor-parallel rank.

    Shapes:  tensor_parallel broadcasts.
    Units:   heads.
    Source:  Megatron-Core ssm/mamba_mixer.py: heads and groups are divided by TP.
    """
    return np.asarray(mixer.heads / array(tensor_parallel))
