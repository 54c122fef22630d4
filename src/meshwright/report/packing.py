"""Samples of a file in packs: what the file holds, what a pack holds, and which caps were tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Section, pieces
from meshwright.words import gib, integer, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.api.packed_search import Tried
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.training import Batch


def packing_lines(
    figures: Mapping[str, float], batch: Batch, predicted: Estimate | None, tried: Sequence[Tried] = ()
) -> Iterator[Section]:
    """The lengths, the packs that they make, and how the cap was found."""
    yield Section(title="Samples in packs", blocks=tuple(_lines(figures, batch, predicted, tried)))


def _lines(
    figures: Mapping[str, float], batch: Batch, predicted: Estimate | None, tried: Sequence[Tried]
) -> Iterator[Block]:
    cut = figures["samples"] - figures["documents"]
    said = [f"lengths of {integer(figures['documents'])} documents"]
    said += [f"{integer(figures['samples'])} samples: long ones are cut"] if cut else []
    said += [
        f"mean {integer(figures['mean'])}, half up to {integer(figures['p50'])}, 99 % up to {integer(figures['p99'])}, "
        f"longest {integer(figures['max'])} tokens",
    ]
    yield pieces(*said)
    if batch.packing is not None:
        packs = [
            f"packs of at most {integer(batch.sequence_tokens)} tokens", f"{batch.packing.samples_per_sequence:.3g} samples a pack",
            f"{percent(batch.padding_ratio)} padding",
        ]
        if predicted is not None:
            packs.append(f"{gib(predicted.memory_capacity_bytes - predicted.memory_reserved_bytes)} of memory left")
        yield pieces(*packs)
    if tried:
        steps = [seconds(each.step_s) if each.step_s is not None else "does not fit" for each in tried]
        words = [f"{each.packs} x {integer(each.max_tokens)}: {step}" for each, step in zip(tried, steps, strict=True)]
        yield pieces("packs x tokens that were tried, with the expected step of their best plan", *words, kind="small")
        asked = f"--max-tokens {batch.sequence_tokens} --packs {batch.global_batch_sequences}"
        yield pieces(f"a layout of this list has these figures under {asked}: estimate and check take them", kind="small")
