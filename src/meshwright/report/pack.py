"""Samples in micro-batches: padding before and after, how even they are, what that gains, and each limit as a line of a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Bar, Block, Part, Run, Section, cell, figure, line, pieces, table
from meshwright.words import bare_gib, gib, integer, percent, plural, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.packed import Packed
    from meshwright.api.packed_curve import Point
    from meshwright.api.packed_dynamic import Dynamic
    from meshwright.api.verbs.pack import PackAnswer
    from meshwright.report.blocks import Told

BAR = 20
THEIRS = {
    "chatlearn": "as ChatLearn packs them", "verl": "as verl packs them", "slime": "as slime packs them",
    "slime-flops": "as slime packs them with --balance-by-flops", "nemo-rl": "as NeMo-RL packs them", "trl": "as TRL packs them",
}


def told_of(answer: PackAnswer) -> Iterator[Told]:
    """What a terminal prints: lengths, micro-batches, what they gain, and the limits."""
    from meshwright.report.cost import saved_lines

    yield from pack_report(answer.packed)
    if answer.saved:
        yield from saved_lines(answer.saved)


def pack_report(answer: Packed) -> Iterator[Told]:
    """All of an answer."""
    rules, outcome = answer.rules, answer.outcome
    known = answer.lengths.figures()
    yield line(Run("Samples", "strong"))
    yield pieces(
        plural(int(known["samples"]), "sample"), f"mean {integer(known['mean'])}, half up to {integer(known['p50'])}, 99 % up to "
        f"{integer(known['p99'])}, longest {integer(known['max'])} tokens",
    )
    if outcome.steps > 1 or outcome.left_over:
        steps = [f"{plural(outcome.steps, 'step')} of {integer(outcome.step_samples)} samples"]
        steps += [f"{integer(outcome.left_over)} left over"] if outcome.left_over else []
        steps += [f"figures are of {integer(outcome.looked_at)} of them"] if outcome.looked_at < outcome.steps else []
        yield pieces(*steps)
    title = f"Micro-batches of at most {integer(rules.max_tokens)} tokens for {plural(rules.data_parallel, 'rank')}"
    title = f"{title}, {THEIRS[rules.mode]}" if rules.mode in THEIRS else title
    yield Section(title=title, blocks=tuple(_microbatches(answer)))
    if answer.dynamic is not None:
        yield _dynamic(answer.dynamic)
    if answer.curve:
        yield _curve(answer.curve, answer.recommended)
    else:
        yield line(f"Recommended limit {integer(answer.recommended)} tokens", above=True)
        yield pieces("the smallest that fills micro-batches", "memory is not known: name --model and a cluster", kind="small")


def _microbatches(answer: Packed) -> Iterator[Block]:
    """How many there are, how full and how even, and what they gain."""
    rules, outcome, total = answer.rules, answer.outcome, answer.outcome.total
    longest = answer.lengths.figures()["max"]
    yield pieces(
        f"{plural(total.microbatches, 'micro-batch', 'micro-batches')}, {integer(total.most_of_a_rank)} of a rank",
        f"no packing has fewer than {integer(answer.lower_bound)}", f"fullest {integer(total.most_tokens)} tokens",
    )
    over = f"{plural(total.overflows, 'micro-batch is', 'micro-batches are')} above the limit"
    yield pieces(
        Run(over, "bad") if total.overflows else "none above the limit", f"dearest rank {_above(total.imbalance_ratio)}",
        f"dearest micro-batch {_above(total.microbatch_imbalance_ratio)}",
    )
    if answer.keeping is not None:
        stay = f"with its limit at {integer(answer.keeping)} its micro-batches of these samples stay within "
        yield pieces(f"{stay}{integer(rules.max_tokens)}")
    if answer.keeping_any is not None:
        yield pieces(f"at {integer(answer.keeping_any)} those of any samples up to {integer(longest)} tokens")
    yield pieces(
        f"padding {percent(outcome.padding_before)} before, {percent(max(0.0, outcome.padding_after))} after",
        f"{percent(outcome.padding_buckets)} with samples of like length side by side",
    )
    low, high = answer.speedup.interval
    if answer.curve and answer.speedup.by == "cost model":
        label = answer.curve[0].estimate.label
        yield pieces(f"{answer.speedup.ratio:.2f} times as fast as padded ({low:.2f}-{high:.2f})", f"as {label}")
    else:
        tokens, other = answer.speedup.ratio, low if answer.speedup.ratio == high else high
        yield pieces(
            f"padded the dearest rank has {tokens:.2f} times the tokens, {other:.2f} times the attention",
            "in seconds with --model on a cluster",
        )


def _dynamic(found: Dynamic) -> Section:
    """Groups of ranks by the length of each sample."""
    step = found.step
    most = max(len(step.of_rank(rank)) for rank in range(found.ranks))
    static = f"cp{found.static_degree} for all, which the longest needs"
    title = f"Context parallelism by sample, at most {integer(found.rank_tokens)} tokens of each of {plural(found.ranks, 'rank')}"
    return Section(title=title, blocks=(
        pieces(*(f"cp{degree}: {plural(count, 'sample')}" for degree, count in found.samples_by_degree.items())),
        pieces(
            f"{plural(len(step.groups), 'micro-batch', 'micro-batches')}, at most {integer(most)} of a rank",
            f"fullest {integer(max(each.rank_tokens for each in step.groups))} tokens of a rank",
            f"dearest rank {_above(step.imbalance_ratio)}",
        ),
        pieces(
            f"{found.static_ratio:.2f} times as fast as {static}" if found.static_ratio is not None else
            f"with --model on a cluster: how much faster than {static}",
        ),
    ))


def _above(ratio: float) -> str:
    """How far something is above the mean."""
    return f"{percent(ratio - 1)} above the mean" if ratio > 1.0005 else "at the mean"


def _curve(points: Sequence[Point], recommended: int) -> Section:
    """Tokens a second as bars, memory beside them; the recommended limit is marked."""
    most = max(each.trained_tokens_per_s for each in points)
    chosen = next(each for each in points if each.max_tokens == recommended)
    capacity = chosen.estimate.memory_capacity_bytes
    left = capacity - chosen.estimate.memory_reserved_bytes
    words = f"Recommended limit {integer(recommended)} tokens, {gib(left)} of memory left"
    if not chosen.estimate.fits:
        words = f"No limit fits in memory: the smallest lacks {gib(-left)}"
    rows = [
        (
            ">" if each.max_tokens == recommended else "", figure(each.max_tokens, integer), figure(each.packs, integer),
            figure(each.estimate.step_s, seconds), figure(each.trained_tokens_per_s, rate),
            Bar(parts=(Part(name="tokens/s", letter="=", style="blue", value=each.trained_tokens_per_s),), scale=most, width=BAR),
            cell(figure(each.estimate.memory_reserved_bytes, bare_gib), "/", figure(capacity, bare_gib, 0)),
            figure(each.estimate.memory_fit_probability, percent, 0),
        )
        for each in points
    ]
    head = ("", "limit", "packs", "step", "tokens/s", "", "GiB", "fits")
    return Section(title=words, blocks=(table(head, rows, right={1, 2, 3, 4, 6, 7}, whole=range(8), look="headed", indent=0),))
