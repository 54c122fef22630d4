"""The page of ``pack``: the recommended limit, what packing gains, the lengths, and speed and memory against the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Section, Tile, Tiles, View, parted
from meshwright.report.pack import pack_report, told_of
from meshwright.report.page.plots import plot
from meshwright.report.page.plotted import Paired
from meshwright.report.pages.common import asked_section, case_line, page
from meshwright.report.svg import BLUE, ORANGE
from meshwright.units import GIB
from meshwright.words import gib, integer, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.packed import Packed
    from meshwright.api.packed_curve import Point
    from meshwright.api.verbs.pack import PackAnswer


def page_of(answer: PackAnswer) -> View:
    """The view of an answer."""
    packed = answer.packed
    first, sections = parted(pack_report(packed))
    given = packed.given
    gain = f": {packed.speedup.ratio:.2f} times as fast as padded" if packed.speedup.by == "cost model" else ""
    title = f"Pack to at most {integer(packed.recommended)} tokens{gain}" if packed.fits else "No limit fits in memory"
    lengths = [float(each) for each in packed.lengths.lengths]
    return page(
        "pack", title, subtitle="" if given is None else case_line(given.case), verdict="good" if packed.fits else "bad",
        first=(_tiles(packed), *first), told=tuple(told_of(answer)),
        sections=(
            *((_curve(packed.curve, packed.recommended),) if packed.curve else ()), *sections,
            Section(title="Lengths of the samples", blocks=(
                plot("histogram", values=lengths, title="Lengths of the samples", label="tokens of a sample", words="integer"),
            )),
            None if given is None else asked_section(given.case),
        ),
    )


def _tiles(packed: Packed) -> Tiles:
    low, high = packed.speedup.interval
    total = packed.outcome.total
    return Tiles(tiles=(
        Tile(name="as fast as padded" if packed.speedup.by == "cost model" else "the tokens, padded",
             value=f"{packed.speedup.ratio:.2f} times",
             remark=f"{low:.2f} to {high:.2f}" if packed.speedup.by == "cost model" else "seconds with --model on a cluster"),
        Tile(name="padding", value=percent(max(0.0, packed.outcome.padding_after)),
             remark=f"{percent(packed.outcome.padding_before)} before"),
        Tile(name="micro-batches", value=integer(total.microbatches), remark=f"at least {integer(packed.lower_bound)}"),
        Tile(name="samples above the limit", value=integer(total.overflows), tone="bad" if total.overflows else ""),
    ))


def _curve(points: Sequence[Point], chosen: int) -> Section:
    """Tokens a second, and memory, against the limit; the recommended one is a line through both."""
    speed = Paired(name="tokens/s without padding", colour=BLUE, joined=True,
                   points=tuple((float(each.max_tokens), each.trained_tokens_per_s) for each in points))
    held = Paired(name="GiB reserved on the fullest device", colour=ORANGE, joined=True,
                  points=tuple((float(each.max_tokens), each.estimate.memory_reserved_bytes / GIB) for each in points))
    capacity = points[0].estimate.memory_capacity_bytes
    across = "limit of a micro-batch, tokens"
    return Section(title="Speed and memory against the limit", blocks=(
        plot("pairs", kinds=(speed,), title="Tokens a second against the limit", across=across, up="", words=("integer", "rate"),
             height=190.0, mark=float(chosen)),
        plot("pairs", kinds=(held,), title="Memory against the limit", across=across, up="", words=("integer", "whole"),
             height=190.0, level=capacity / GIB, limit_word=f"usable {gib(capacity)}", mark=float(chosen),
             caption="The green line is the recommended limit."),
    ))
