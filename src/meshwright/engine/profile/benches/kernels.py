"""Matrix products and attention, as the modules of the reference step and their gradients call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from meshwright.engine.profile.bench import DTYPES, Bench, Call, Place, Timed, number, word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def product(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """One of a Linear's three products, with its weight ``[columns, inner]``, in the memory layouts of its autograd."""
    rows, columns, inner = (number(arguments, name) for name in ("rows", "columns", "inner"))
    dtype, direction = word(arguments, "dtype"), word(arguments, "direction")

    def build() -> Call:
        x, weight, gradient = (place.filled(*shape, dtype=dtype) for shape in ((rows, inner), (columns, inner), (rows, columns)))
        return {
            "forward": lambda: x @ weight.t(),
            "input": lambda: gradient @ weight,
            "weight": lambda: gradient.t() @ x,
        }[direction]

    size = float((rows * inner + inner * columns + rows * columns) * DTYPES[dtype].itemsize)
    copies = place.copies(build, size)
    return Bench(parts={"one": Timed(copies=copies)}, values=lambda _: {"flops": 2.0 * rows * columns * inner, "bytes": size})


def grouped(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """Products of experts that have equally many rows, one by one as ``engine.experts.Routed`` runs them; backward: of both."""
    rows, columns, inner, groups = (number(arguments, name) for name in ("rows", "columns", "inner", "groups"))
    dtype, backward = word(arguments, "dtype"), word(arguments, "direction") == "backward"
    counts = [rows // groups + (place_in < rows % groups) for place_in in range(groups)]

    def build() -> Call:
        x = place.filled(rows, inner, dtype=dtype, gradient=True)
        weights = place.filled(groups, inner, columns, dtype=dtype, gradient=True)

        def forward() -> Tensor:
            return torch.cat([part @ weight for part, weight in zip(torch.split(x, counts), weights.unbind(), strict=True)])

        return gradients(forward(), (x, weights)) if backward else forward

    size = float((rows * inner + groups * inner * columns + rows * columns) * DTYPES[dtype].itemsize)
    copies = place.copies(build, size)
    flops = (4.0 if backward else 2.0) * rows * columns * inner
    return Bench(parts={"one": Timed(copies=copies)}, values=lambda _: {"flops": flops, "bytes": size * (2.0 if backward else 1.0)})


def attention(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """Causal attention as ``engine.attention.Core`` calls it, on heads that are columns of rows of tokens."""
    sequences, heads, key_heads, tokens, width = (
        number(arguments, name) for name in ("sequences", "heads", "key_heads", "tokens", "head_dim")
    )
    dtype, backward = word(arguments, "dtype"), word(arguments, "direction") == "backward"

    def build() -> Call:
        query, key, value = (
            place.filled(sequences, tokens, number_of * width, dtype=dtype, gradient=True)
            .view(sequences, tokens, number_of, width)
            .transpose(1, 2)
            for number_of in (heads, key_heads, key_heads)
        )

        def forward() -> Tensor:
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=width**-0.5, enable_gqa=True
            )

        return gradients(forward(), (query, key, value)) if backward else forward

    size = float(sequences * tokens * width * 2 * (heads + key_heads) * DTYPES[dtype].itemsize)
    copies = place.copies(build, size)
    flops = (5.0 if backward else 2.0) * sequences * heads * tokens**2 * width  # half of the square is masked
    return Bench(parts={"one": Timed(copies=copies)}, values=lambda _: {"flops": flops, "bytes": size * (2.0 if backward else 1.0)})


def gradients(out: Tensor | tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Call:
    """The backward pass alone, from a graph that is built once and kept."""
    outputs = out if isinstance(out, tuple) else (out,)
    given = tuple(torch.randn_like(each) if each.dim() else torch.ones_like(each) for each in outputs)

    def backward() -> object:
        return torch.autograd.grad(outputs, inputs, given, retain_graph=True)

    return backward
