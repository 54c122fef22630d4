"""Tokens one after the other: what an engine reads and computes for the next token of every sequence that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.mesh import group
from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.parameters import met_parameters, total_parameters

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention
    from meshwright.domain.case import Case
    from meshwright.domain.episode import Engine
    from meshwright.domain.model import LayerKind, Model

ELEMENT_BYTES = 2.0
"""Weights, keys and values of engines are BF16."""


def cache_bytes(model: Model, tokens: Number, tensor_parallel: Number) -> Array:
    """Keys and values of a sequence on one device.

        sum over layers  2 w min(s, window);   w = heads / min(t, heads) (d + d_v), of latent attention its rank and rotary key

    Symbols: s ``tokens`` of the sequence; t TP of the engine; of compressed attention s / rate entries beside the window.
    Shapes:  tokens and tensor_parallel broadcast.
    Units:   bytes.
    Holds:   latents are held by every rank of TP; layers without attention keep a state of fixed size, which is left out.
    Source:  vLLM and SGLang keep keys and values so (paged, BF16); DeepSeek-V2 section 2.1.2.
    """
    tokens, ranks = array(tokens), array(tensor_parallel)
    held = array(0.0)
    for index, kind in enumerate(model.kinds):
        held = held + model.pattern.count(index) * _layer_elements(kind, tokens, ranks)
    return np.asarray(ELEMENT_BYTES * held)


def _layer_elements(kind: LayerKind, tokens: Array, ranks: Array) -> Array:
    attention = kind.attention
    if attention is None or attention.borrows_key_value:
        return array(0.0) * tokens
    seen = tokens if attention.window_tokens is None else np.minimum(tokens, attention.window_tokens)
    if attention.compressed is not None and attention.compressed.rate:
        seen = seen + tokens / attention.compressed.rate
    return np.asarray(seen * _width(attention, ranks))


def _width(attention: Attention, ranks: Array) -> Array:
    if attention.latent is not None:
        return array(attention.latent.key_value_rank + attention.latent.rope_dim)
    each = attention.head_dim if attention.shared_key_value or attention.compressed else attention.head_dim + attention.value_dim
    return np.asarray(attention.num_key_value_heads / np.minimum(ranks, attention.num_key_value_heads) * each)


def decode_s(case: Case, engine: Engine, *, running: Number, context_tokens: Number) -> Array:
    """Seconds until every running sequence has its next token.

        t = max((W / t + B C) / (bw mu), 2 A B / (t F eta)) + 2 L r [t > 1] + c

    Symbols: B ``running``; W bytes of the weights that B tokens meet (of a mixture the experts that any is sent to); C
             ``cache_bytes`` of a sequence of ``context_tokens`` on one device; A parameters that a token meets; t TP; bw, F memory
             bandwidth and peak; mu ``memory_ratio``; eta ``gemm_ratio``; L layers; r ``Engine.reduce_s``, over
             several scale-up domains ``reduce_across_s``; c ``Engine.step_host_s``.
    Shapes:  running and context_tokens broadcast.
    Units:   s.
    Holds:   CUDA graphs, so that launches cost nothing; tensor parallelism alone; no speculation, no quantised weights.
    Source:  the roofline of a decoder, Pope et al. 2022 (arXiv 2211.05102) section 2.
    """
    device, constants, model = case.cluster.device, case.calibration.constants, case.model
    ranks, running = array(engine.tensor_parallel), array(running)
    weights = ELEMENT_BYTES * met_parameters(model, running) / ranks
    moved = weights + running * cache_bytes(model, context_tokens, ranks)
    reading = moved / (device.memory_bytes_per_s * constants.memory_ratio)
    flops = 2.0 * met_parameters(model, 1.0) * running / ranks
    computing = flops / (device.peak_flops_per_s["bf16"] * constants.gemm_ratio)
    each = engine.reduce_s if inside(case, engine) else engine.reduce_across_s
    reducing = 2.0 * len(model.pattern) * each if engine.tensor_parallel > 1 else 0.0
    return np.asarray(np.maximum(reading, computing) + reducing + engine.step_host_s)


def inside(case: Case, engine: Engine) -> bool:
    """Whether a copy lies inside one scale-up domain: a node, or a rack whose nodes share a switch.

    Units:   none.
    Source:  ``domain.mesh.group``: neighbouring devices share a copy.
    """
    return bool(group(float(engine.tensor_parallel), 1.0, case.cluster).domains <= 1.0)


def prefill_s(case: Case, engine: Engine, tokens: Number) -> Array:
    """Seconds in which one copy reads prompts.

        t = 2 A T / (t F eta)

    Symbols: T ``tokens``; the others as in ``decode_s``.
    Shapes:  tokens broadcasts.
    Units:   s.
    Holds:   prompts short beside the hidden size, so that scores count little.
    Source:  2 FLOPs for each parameter and token.
    """
    device, constants = case.cluster.device, case.calibration.constants
    rate = engine.tensor_parallel * device.peak_flops_per_s["bf16"] * constants.gemm_ratio
    return np.asarray(2.0 * met_parameters(case.model, 1.0) * array(tokens) / rate)


def weight_tensors(model: Model) -> int:
    """Tensors of the weights as checkpoints name them.

        sum over layers  projections + norms + 3 a gated block or expert, 2 an ungated one;   embedding, head and norm

    Units:   tensors.
    Holds:   about: biases and scalars of heads are left out.
    Source:  state dictionaries of transformers: q, k, v, o (latent attention has five), gate, up, down.
    """
    count = 3
    for index, kind in enumerate(model.kinds):
        own = kind.norms + (5 if kind.mixer is not None else 0)
        if kind.attention is not None:
            own += 4 if kind.attention.latent is None else 5
        if kind.experts is not None:
            own += 1 + (kind.experts.num_experts + (kind.experts.shared_width > 0)) * (kind.experts.num_inputs + 1)
        elif kind.has_block:
            own += 3
        count += model.pattern.count(index) * own
    return count


def weights_bytes(model: Model, tensor_parallel: Number) -> Array:
    """Of one device of a copy that so many share.

    Shapes:  tensor_parallel broadcasts.
    Units:   bytes.
    Source:  BF16 weights, everything divided by TP.
    """
    return np.asarray(ELEMENT_BYTES * total_parameters(model) / array(tensor_parallel))
