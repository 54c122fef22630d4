"""Pipelines as MindSpeed-LLM's flags say them: layout strings, lists of layers, and layers that do nothing."""

from __future__ import annotations

import re

from meshwright.frameworks.ascend.stages import Split, transposed

_TOKEN = re.compile(r"[EtmL]|\||\(|\)|\*[0-9]{1,6}|[\s,]")
MAX_CELLS = 20_000


def layout_text(split: Split, num_mtp_layers: int) -> str:
    """``Et*4|t*5|t*4L``: cells in the order in which a micro-batch passes them."""
    cells = [f"t*{count}" if count else "" for row in split for count in row]
    cells[0] = "E" + cells[0]
    cells[-1] += "m" * num_mtp_layers + "L"
    return "|".join(cells)


def parse_layout_text(text: str, stages: int) -> Split | None:
    """Layers by chunk and stage of a layout string; None where it is none."""
    expanded = _expanded(text)
    if expanded is None:
        return None
    cells = expanded.split("|")
    if stages < 1 or len(cells) % stages:
        return None
    counts = [cell.count("t") for cell in cells]
    return tuple(tuple(counts[at : at + stages]) for at in range(0, len(counts), stages))


def _expanded(text: str) -> str | None:
    """The string with its repetitions written out: ``t*3`` and ``(t|)*2``."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        return None
    stack: list[list[str]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) < 2:
                return None
            stack[-2].append("".join(stack.pop()))
        elif token.startswith("*"):
            if not stack[-1]:
                return None
            last, times = stack[-1].pop(), int(token[1:])
            if len(last) * times > MAX_CELLS:
                return None
            stack[-1].append(last * times)
        elif token.strip(" ,\t\n"):
            stack[-1].append(token)
    return "".join(stack[0]) if len(stack) == 1 else None


def parse_counts(text: str) -> tuple[int, ...] | None:
    """``4,5,5,4``."""
    parts = text.split(",")
    return tuple(map(int, parts)) if all(re.fullmatch(r"\s*[0-9]{1,6}\s*", part) for part in parts) else None


def parse_rank_lists(text: str) -> Split | None:
    """``[[4,5],[5,4]]``, pp lists of vpp (``[1]*3`` repeats), as ``[chunk][stage]``."""
    flat = re.sub(r"\s", "", text)
    while found := re.search(r"(\[[0-9,]*\]|(?<=[\[,])[0-9]+)\*([0-9]{1,4})", flat):
        flat = flat[: found.start()] + ",".join([found[1]] * int(found[2])) + flat[found.end() :]
        if len(flat) > MAX_CELLS:
            return None
    if not re.fullmatch(r"\[\[[0-9]+(,[0-9]+)*\](,\[[0-9]+(,[0-9]+)*\])*\]", flat):
        return None
    ranks = [tuple(map(int, row.split(","))) for row in re.findall(r"\[([0-9,]+)\]", flat)]
    return transposed(tuple(ranks)) if len({len(rank) for rank in ranks}) == 1 else None


def without_noops(split: Split, noops: frozenset[int], *, folded: bool = False) -> Split:
    """The split without the layers that do nothing (``--noop-layers``); ``folded``: the second chunk runs back."""
    at, rows = 0, []
    for chunk, row in enumerate(split):
        order = range(len(row) - 1, -1, -1) if folded and chunk % 2 else range(len(row))
        counts = list(row)
        for stage in order:
            counts[stage] = sum(layer not in noops for layer in range(at, at + row[stage]))
            at += row[stage]
        rows.append(tuple(counts))
    return tuple(rows)


def padding(split: Split, *, folded: bool = False) -> tuple[int, tuple[int, ...]]:
    """Layers of a split whose chunks are padded to the longest, and the ids of those that do nothing: the last of a chunk."""
    longest, at = max(count for row in split for count in row), 0
    noops: list[int] = []
    for chunk, row in enumerate(split):
        for count in reversed(row) if folded and chunk % 2 else row:
            noops += range(at + count, at + longest)
            at += longest
    return at, tuple(noops)
