"""Published runs: as documents, as a line beside a prediction, as a list of the nearest, and one in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, line, pieces, words
from meshwright.words import count, gib, integer, percent, plural, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.evidence.rows.attempts import Attempts
    from meshwright.evidence.rows.near import Difference, Near
    from meshwright.evidence.rows.published_run import Published
    from meshwright.report.blocks import Words

BRIEF = 40
"""How many lines of a list nobody narrowed are worth a screen."""
_NOUNS = {
    "parameters": "parameters", "active_parameters": "active parameters", "devices": "devices",
    "sequence_tokens": "tokens a sequence", "step_tokens": "tokens a step", "global_batch_sequences": "sequences a step",
}
"""A quantity that differs -> what it counts."""


def closest_line(near: Near | None) -> Iterator[Block]:
    """The closest published run, beside a prediction: layout, figures, how it differs, source; nothing where none is near."""
    if near is None:
        return
    run = near.cell.best
    others = [tried] if (tried := _tried(near.cell)) else []
    found = Run(run.label or run.model, "strong")
    yield pieces(words("closest published run ", found), *_figures(run), f"{run.id}: {_framework(run)}", *others,
                 difference_words(near), kind="small", above=True)


def difference_words(near: Near) -> str:
    """What differs, in words; the largest part first."""
    found = [_difference(each) for each in near.differs]
    return f"differs: {'; '.join(found)}" if found else "the same model, devices and batch, as far as asked"


def nearest_list(found: Sequence[Near], total: int) -> Iterator[Block]:
    """The nearest runs: what ran, the fastest layout with its figures, and who says so."""
    yield line(Run(f"The {len(found)} nearest of {total} groups of published runs", bold=True), above=True)
    for near in found:
        run, cell = near.cell.best, near.cell
        yield pieces(_head(run), Run(run.id, "accent"), _framework(run), above=True)
        layout = Run(run.label, bold=True) if run.label else Run(f"none of {cell.failed} tried ran", "bad")
        yield pieces(layout, *_steps(run), *_figures(run), indent=4)
        tried = [said] if run.label and (said := _tried(cell)) else []
        yield pieces(*tried, difference_words(near), indent=4, kind="small")


def attempts_list(found: Sequence[Attempts], limit: int | None) -> Iterator[Block]:
    """All cells, up to a limit: what ran, the fastest speed, and how many were tried."""
    shown = found[: limit or BRIEF]
    yield line(Run(f"{len(found)} runs: the fastest of each model, cluster, batch and framework", bold=True), above=True)
    for cell in shown:
        run = cell.best
        speed = f"{rate(run.tokens_per_s_per_device)} tokens/s/device" if run.tokens_per_s_per_device else "no speed"
        mfu = [f"{percent(run.mfu_ratio)} MFU"] if run.mfu_ratio else []
        yield pieces(_head(run), Run(run.id, "accent"))
        yield pieces(run.framework, speed, *mfu, f"{cell.ran} of {cell.ran + cell.failed} ran", indent=4)
    if len(shown) < len(found):
        yield line(f"{len(found) - len(shown)} more: --near MODEL --device NAME, or --limit N", kind="small", indent=2)


def _head(run: Published) -> Words:
    return words(Run(run.model, bold=True), f" on {_machine(run)}{f', {size} tokens' if (size := _size(run)) else ''}")


def _figures(run: Published) -> list[str]:
    """Speed and memory in one line."""
    figures = [f"{rate(run.tokens_per_s_per_device)} tokens/s/device"] if run.tokens_per_s_per_device else []
    figures += [f"{seconds(run.step_s)} a step"] if run.step_s else []
    figures += [f"{percent(run.mfu_ratio)} MFU"] if run.mfu_ratio else []
    return figures + [" ".join(_memory(run))] * (run.memory_bytes is not None)


def _memory(run: Published) -> list[str]:
    return [gib(run.memory_bytes), run.memory_kind] if run.memory_bytes is not None else ["-"]


def _steps(run: Published) -> list[str]:
    words = [f"{plural(run.num_microbatches, 'accumulation step')}"] if run.num_microbatches else []
    return words if run.recompute in {"", "none"} or "recompute=" in run.label else [*words, f"recompute {run.recompute}"]


def _machine(run: Published) -> str:
    return f"{run.devices or '?'} x {run.device}, {run.precision}" + (f", {run.task}" if run.task != "pretrain" else "")


def _size(run: Published) -> str:
    batch, sequence = run.global_batch_sequences, run.sequence_tokens
    return f"{integer(batch) if batch else '?'} x {integer(sequence) if sequence else '?'}" if batch or sequence else ""


def _framework(run: Published) -> str:
    return f"{run.framework} {run.framework_version}".strip()


def _tried(cell: Attempts) -> str:
    """How many others the fastest one has beside it."""
    words = [f"fastest of {cell.ran}"] if cell.ran > 1 else []
    return "; ".join([*words, *([f"{cell.failed} more failed"] if cell.failed else [])])


def _difference(each: Difference) -> str:
    noun = _NOUNS.get(each.what)
    if noun is not None:
        scale = integer if max(float(each.published), float(each.wanted)) < 1e6 else count
        return f"{scale(float(each.published))} {noun}, not {scale(float(each.wanted))}"
    return f"{each.published}, not {each.wanted}" if each.wanted else str(each.published)
