"""The document of ``atlas`` in words: what it is of, its rows and columns, and what a cell says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.units import GIB
from meshwright.words import percent, plural, speed

if TYPE_CHECKING:
    from collections.abc import Mapping

Rows = dict[tuple[str, str], dict[int, "Mapping[str, Any]"]]
"""(Series, device) -> devices -> cell."""
COARSE = "~"
TITLES = {"predicted": "Predicted", "measured": "Measured"}


def title_of(view: Mapping[str, Any]) -> str:
    """How many models on how many numbers of devices, and where the cells come from."""
    series = {each["series"] for each in view["cells"]}
    sizes = {each["devices"] for each in view["cells"]}
    kinds = " and ".join(sources(view)) or "no cells"
    return f"Atlas: {plural(len(series), 'model')} on {plural(len(sizes), 'cluster size')}, {kinds}"


def standing(view: Mapping[str, Any]) -> list[str]:
    """What the cells share, and how far they are searched."""
    cells, asked = view["cells"], view["request"]
    said = []
    batches = {(each["global_batch_sequences"], each["sequence_tokens"]) for each in cells}
    devices = sorted({each["device"] for each in cells})
    samples = {each["samples"] for each in cells} - {None}
    if samples:
        packs = "in packs" if len(batches) == 1 else "in packs that suit each cell"
        number = " or ".join(f"{each:,}" for each in sorted(samples))
        said.append(f"{number} samples of {Path(asked['lengths']).name} a step, {packs}")
    elif len(batches) == 1 and None not in (only := next(iter(batches))):
        said.append(f"{plural(only[0], 'sequence')} of {only[1]:,} tokens a step")
    shared = [", ".join(devices[:4]) + (" and others" if len(devices) > 4 else ""), *said]
    shared += [asked[name] for name in ("framework", "precision") if name in asked]
    shared += [f"pinned {' '.join(asked['pin'])}"] if asked.get("pin") else []
    lines = ["; ".join(filter(None, shared))]
    predicted = view["coarse"] + view["refined"]
    if view["coarse"]:
        of_all = f"{view['coarse']} of {plural(predicted, 'cell')}"
        lines.append(f"{COARSE} coarse: {of_all} by the grid of layouts alone; the whole search may find better")
    if not view["complete"]:
        left = f": {plural(view['missing'], 'cell')} not come to" if view["missing"] else ""
        lines.append(f"interrupted{left}; the same command goes on where its cells were kept (--keep)")
    return lines


def sources(view: Mapping[str, Any]) -> list[str]:
    """Predicted, measured, or both."""
    known = {each["source"] for each in view["cells"]}
    return [each for each in TITLES if each in known]


def rows_of(view: Mapping[str, Any], source: str) -> Rows:
    """Cells of one source by row and column, rows in the order of the atlas."""
    rows: Rows = {}
    for each in view["cells"]:
        if each["source"] == source:
            rows.setdefault((each["series"], each["device"]), {})[each["devices"]] = each
    return rows


def by_nodes(view: Mapping[str, Any]) -> bool:
    """Whether columns are numbers of nodes: all are whole ones, of one size."""
    return all(each["nodes"] for each in view["cells"]) and len({each["devices_per_node"] for each in view["cells"]}) == 1


def columns_of(rows: Rows) -> list[int]:
    """Numbers of devices, rising."""
    return sorted({devices for row in rows.values() for devices in row})


def names_of(rows: Rows) -> dict[tuple[str, str], str]:
    """What rows are called: with their devices where these differ."""
    several = len({device for _, device in rows}) > 1
    return {(series, device): f"{series}, {device}" if several else series for series, device in rows}


def size_word(cell: Mapping[str, Any], *, nodes: bool) -> str:
    """A number of nodes or devices."""
    return f"{cell['nodes'] if nodes else cell['devices']:,}"


def head_of(rows: Rows, devices: int, *, nodes: bool) -> str:
    """The heading of a column."""
    return size_word(next(row[devices] for row in rows.values() if devices in row), nodes=nodes)


def mfu_word(cell: Mapping[str, Any] | None) -> str:
    """What the map says in a cell."""
    if cell is None:
        return ""
    if cell["label"] is None:
        return "-" if cell["missing_bytes"] is None else f"+{lacking(cell)}"
    if cell["mfu_ratio"] is None:
        return f"{speed(cell['tokens_per_s_per_device'])}/s" if cell["tokens_per_s_per_device"] else "ran"
    return f"{COARSE if cell['grade'] == 'coarse' else ''}{percent(cell['mfu_ratio'])}"


def lacking(cell: Mapping[str, Any]) -> str:
    """Missing memory in whole GiB, upwards."""
    return f"{max(1, -(-cell['missing_bytes'] // GIB)):,.0f} GiB"


VERDICTS = {
    "same": "the same layout", "within": "another layout, within the model's interval", "other": "another layout",
    "only predicted": "nobody measured it", "only measured": "no layout is predicted to fit", "neither": "empty in both",
}


def tally(view: Mapping[str, Any]) -> str:
    """How many cells agree."""
    found = [each["verdict"] for each in view["differences"]]
    compared = [each for each in found if each in {"same", "within", "other"}]
    alike = sum(each != "other" for each in compared)
    words = f"{alike} of {plural(len(compared), 'measured cell')} have the same best layout within the model's interval"
    exactly = found.count("same")
    empty = found.count("neither")
    return f"{words}, {exactly} of them exactly" + (f"; {plural(empty, 'cell')} empty in both" if empty else "")


def changes_word(each: Mapping[str, Any]) -> str:
    """What sets two layouts apart, by the words of a label."""
    if not each["changes"]:
        return VERDICTS[each["verdict"]]
    return ", ".join(f"{word} {one['predicted']} -> {one['measured']}" for word, one in each["changes"].items())
