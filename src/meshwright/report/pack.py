"""Samples in micro-batches: padding before and after, how even they are, what that gains, and each limit as a line of a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.bars import Part, StackedBar
from meshwright.report.pieces import Pieces
from meshwright.words import gib, integer, percent, plural, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.api.packed import Packed
    from meshwright.api.packed_curve import Point
    from meshwright.api.packed_dynamic import Dynamic

BAR = 20
THEIRS = {
    "chatlearn": "as ChatLearn packs them", "verl": "as verl packs them", "slime": "as slime packs them",
    "slime-flops": "as slime packs them with --balance-by-flops", "nemo-rl": "as NeMo-RL packs them", "trl": "as TRL packs them",
}


def pack_report(answer: Packed) -> Iterator[RenderableType]:
    """All of an answer."""
    rules, outcome, total = answer.rules, answer.outcome, answer.outcome.total
    known = answer.lengths.figures()
    yield Text("Samples", style="bold")
    yield Pieces(pieces=[
        plural(int(known["samples"]), "sample"), f"mean {integer(known['mean'])}, half up to {integer(known['p50'])}, 99 % up to "
        f"{integer(known['p99'])}, longest {integer(known['max'])} tokens",
    ])
    if outcome.steps > 1 or outcome.left_over:
        steps = [f"{plural(outcome.steps, 'step')} of {integer(outcome.step_samples)} samples"]
        steps += [f"{integer(outcome.left_over)} left over"] if outcome.left_over else []
        steps += [f"figures are of {integer(outcome.looked_at)} of them"] if outcome.looked_at < outcome.steps else []
        yield Pieces(pieces=steps)
    title = f"Micro-batches of at most {integer(rules.max_tokens)} tokens for {plural(rules.data_parallel, 'rank')}"
    yield Padding(Text(f"{title}, {THEIRS[rules.mode]}" if rules.mode in THEIRS else title, style="bold"), (1, 0, 0, 0))
    yield Pieces(pieces=[
        f"{plural(total.microbatches, 'micro-batch', 'micro-batches')}, {integer(total.most_of_a_rank)} of a rank",
        f"no packing has fewer than {integer(answer.lower_bound)}", f"fullest {integer(total.most_tokens)} tokens",
    ])
    over = f"{plural(total.overflows, 'micro-batch is', 'micro-batches are')} above the limit"
    yield Pieces(pieces=[
        Text(over, style="red") if total.overflows else "none above the limit",
        f"dearest rank {_above(total.imbalance_ratio)}", f"dearest micro-batch {_above(total.microbatch_imbalance_ratio)}",
    ])
    if answer.keeping is not None:
        stay = f"with its limit at {integer(answer.keeping)} its micro-batches of these samples stay within "
        yield Pieces(pieces=[f"{stay}{integer(rules.max_tokens)}"])
    if answer.keeping_any is not None:
        yield Pieces(pieces=[f"at {integer(answer.keeping_any)} those of any samples up to {integer(known['max'])} tokens"])
    yield Pieces(pieces=[
        f"padding {percent(outcome.padding_before)} before, {percent(max(0.0, outcome.padding_after))} after",
        f"{percent(outcome.padding_buckets)} with samples of like length side by side",
    ])
    low, high = answer.speedup.interval
    if answer.curve and answer.speedup.by == "cost model":
        label = answer.curve[0].estimate.label
        yield Pieces(pieces=[f"{answer.speedup.ratio:.2f} times as fast as padded ({low:.2f}-{high:.2f})", f"as {label}"])
    else:
        tokens, other = answer.speedup.ratio, low if answer.speedup.ratio == high else high
        yield Pieces(pieces=[
            f"padded the dearest rank has {tokens:.2f} times the tokens, {other:.2f} times the attention",
            "in seconds with --model on a cluster",
        ])
    if answer.dynamic is not None:
        yield from _dynamic(answer.dynamic)
    if answer.curve:
        yield from _curve(answer.curve, answer.recommended)
    else:
        yield Padding(Text(f"Recommended limit {integer(answer.recommended)} tokens"), (1, 0, 0, 0))
        words = ["the smallest that fills micro-batches", "memory is not known: name --model and a cluster"]
        yield Pieces(pieces=words, style="dim")


def _dynamic(found: Dynamic) -> Iterator[RenderableType]:
    """Groups of ranks by the length of each sample."""
    step = found.step
    title = f"Context parallelism by sample, at most {integer(found.rank_tokens)} tokens of each of {plural(found.ranks, 'rank')}"
    yield Padding(Text(title, style="bold"), (1, 0, 0, 0))
    yield Pieces(pieces=[f"cp{degree}: {plural(count, 'sample')}" for degree, count in found.samples_by_degree.items()])
    most = max(len(step.of_rank(rank)) for rank in range(found.ranks))
    yield Pieces(pieces=[
        f"{plural(len(step.groups), 'micro-batch', 'micro-batches')}, at most {integer(most)} of a rank",
        f"fullest {integer(max(each.rank_tokens for each in step.groups))} tokens of a rank",
        f"dearest rank {_above(step.imbalance_ratio)}",
    ])
    static = f"cp{found.static_degree} for all, which the longest needs"
    yield Pieces(pieces=[
        f"{found.static_ratio:.2f} times as fast as {static}" if found.static_ratio is not None else
        f"with --model on a cluster: how much faster than {static}",
    ])


def _above(ratio: float) -> str:
    """How far something is above the mean."""
    return f"{percent(ratio - 1)} above the mean" if ratio > 1.0005 else "at the mean"


def _curve(points: Sequence[Point], recommended: int) -> Iterator[RenderableType]:
    """Tokens a second as bars, memory beside them; the recommended limit is marked."""
    most = max(each.trained_tokens_per_s for each in points)
    chosen = next(each for each in points if each.max_tokens == recommended)
    capacity = chosen.estimate.memory_capacity_bytes
    left = capacity - chosen.estimate.memory_reserved_bytes
    words = f"Recommended limit {integer(recommended)} tokens, {gib(left)} of memory left"
    if not chosen.estimate.fits:
        words = f"No limit fits in memory: the smallest lacks {gib(-left)}"
    yield Padding(Text(words, style="bold"), (1, 0, 0, 0))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "limit", "packs", "step", "tokens/s", "", "GiB", "fits"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for each in points:
        speed = Part(name="tokens/s", letter="=", style="blue", value=each.trained_tokens_per_s)
        table.add_row(
            ">" if each.max_tokens == recommended else "", integer(each.max_tokens), integer(each.packs),
            seconds(each.estimate.step_s), rate(each.trained_tokens_per_s), StackedBar(parts=[speed], scale=most, width=BAR),
            f"{each.estimate.memory_reserved_bytes / 2**30:.1f}/{capacity / 2**30:.0f}",
            percent(each.estimate.memory_fit_probability, 0),
        )
    yield table
