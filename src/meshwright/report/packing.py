"""Samples of a file in packs: what the file holds, what a pack holds, and which caps were tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from meshwright.report.pieces import Pieces
from meshwright.words import gib, integer, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from meshwright.api.packed_search import Tried
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.training import Batch


def packing_lines(
    figures: Mapping[str, float], batch: Batch, predicted: Estimate | None, tried: Sequence[Tried] = ()
) -> Iterator[RenderableType]:
    """The lengths, the packs that they make, and how the cap was found."""
    cut = figures["samples"] - figures["documents"]
    pieces = [f"lengths of {integer(figures['documents'])} documents"]
    pieces += [f"{integer(figures['samples'])} samples: long ones are cut"] if cut else []
    pieces += [
        f"mean {integer(figures['mean'])}, half up to {integer(figures['p50'])}, 99 % up to {integer(figures['p99'])}, "
        f"longest {integer(figures['max'])} tokens",
    ]
    yield Padding(Text("Samples in packs", style="bold"), (1, 0, 0, 0))
    yield Pieces(pieces=pieces)
    if batch.packing is not None:
        packs = [
            f"packs of at most {integer(batch.sequence_tokens)} tokens", f"{batch.packing.samples_per_sequence:.3g} samples a pack",
            f"{percent(batch.padding_ratio)} padding",
        ]
        if predicted is not None:
            packs.append(f"{gib(predicted.memory_capacity_bytes - predicted.memory_reserved_bytes)} of memory left")
        yield Pieces(pieces=packs)
    if tried:
        steps = [seconds(each.step_s) if each.step_s is not None else "does not fit" for each in tried]
        words = [f"{each.packs} x {integer(each.max_tokens)}: {step}" for each, step in zip(tried, steps, strict=True)]
        yield Pieces(pieces=["packs x tokens that were tried, with the expected step of their best plan", *words], style="dim")
        asked = f"--max-tokens {batch.sequence_tokens} --packs {batch.global_batch_sequences}"
        yield Pieces(pieces=[f"a layout of this list has these figures under {asked}: estimate and check take them"], style="dim")
