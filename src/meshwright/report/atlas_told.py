"""The answer of ``atlas`` as blocks: the map of MFU, its cells with their layouts, linearity, and what predicted and measured have
apart. All from its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.atlas import (
    TITLES,
    by_nodes,
    changes_word,
    columns_of,
    head_of,
    lacking,
    mfu_word,
    names_of,
    rows_of,
    size_word,
    sources,
    standing,
    tally,
    title_of,
)
from meshwright.report.atlas_scale import share_of
from meshwright.report.blocks import Cell, Run, Section, cell, figure, line, table
from meshwright.units import GIB
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.report.blocks import Block, Paragraph, Table, Told

    View = Mapping[str, Any]

NEUTRAL = {"1", "-", ""}
FIELDS: dict[str, str] = {
    "dp": "data_parallel", "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "vp": "virtual_stages",
    "ep": "expert_parallel", "etp": "expert_tensor_parallel", "mb": "microbatch_sequences", "acc": "num_microbatches",
    "zero": "zero_stage", "recompute": "recompute", "offload": "offload",
}
"""Columns of layouts; ``acc``: micro-batches of a step, which are accumulated."""
_ALWAYS = {"dp", "tp", "pp", "mb", "acc", "zero"}
COMPARED = ("best layout", "predicted\nto be best", "measured\nbest", "predicted\nfor that", "held", "own best\nmeasured")
HELD = "held: the best measured step lies in the 90 % interval predicted for its layout"
WITHIN = "within: another layout whose predicted step lies in the interval of the first one's"


def told_of(view: View) -> tuple[Told, ...]:
    """What a terminal prints."""
    return tuple(_told(view))


def _told(view: View) -> Iterator[Told]:
    yield line(Run(title_of(view), "strong"))
    for each in standing(view):
        yield line(each, kind="small", indent=2)
    for source in sources(view):
        yield map_section(view, source)
    if "differences" in view:
        yield difference_section(view)
    for source in sources(view):
        yield cells_section(view, source)
    for section in (linearity_section(view), empty_section(view)):
        if section.blocks:
            yield section
    for note in view["notes"]:
        yield line(f"note: {note}", indent=2)


def map_section(view: View, source: str) -> Section:
    """The MFU of every cell on its colour, and what stands in cells without one."""
    rows, nodes = rows_of(view, source), by_nodes(view)
    columns, names = columns_of(rows), names_of(rows)
    top = max((each["mfu_ratio"] or 0.0 for row in rows.values() for each in row.values()), default=0.0)
    told = table(
        (f"model \\ {_noun(view)}", *(head_of(rows, each, nodes=nodes) for each in columns)),
        [(names[key], *(_shaded(row.get(each), top) for each in columns)) for key, row in rows.items()],
        right=range(1, len(columns) + 1), look="map",
    )
    remark = "of the dense peak of the devices"
    legend = _legend([each for row in rows.values() for each in row.values()])
    return Section(title=f"{TITLES[source]}: model FLOPs utilization", remark=remark, blocks=(told, *legend))


def _shaded(each: View | None, top: float) -> Cell:
    """A cell's word on the colour of its MFU."""
    said = mfu_word(each)
    if each is None or each["label"] is None:
        return cell(Run(said, "bad" if each is not None and each["missing_bytes"] is not None else "dim"))
    if each["mfu_ratio"] is None:
        return cell(said)
    return Cell(words=(Run(said, value=each["mfu_ratio"], unit="ratio"),), shade=share_of(each["mfu_ratio"], top))


def _legend(cells: Sequence[View]) -> Iterator[Paragraph]:
    """What stands in cells without a figure."""
    empty = [each for each in cells if each["label"] is None]
    if any(each["missing_bytes"] is not None for each in empty):
        said = "+N GiB: nothing fits; so much one device lacks for the least demanding layout"
        yield line(said, kind="small", indent=2)
    if any(each["missing_bytes"] is None for each in empty):
        tried = any(each["source"] == "measured" for each in empty)
        said = "-: runs were tried, and none worked" if tried else "-: no layout is legal; why is said below"
        yield line(said, kind="small", indent=2)


def cells_section(view: View, source: str) -> Section:
    """Of each row a table: every size with its figures and the degrees of its layout."""
    rows = rows_of(view, source)
    blocks: list[Block] = []
    for key, name in names_of(rows).items():
        found = [rows[key][devices] for devices in sorted(rows[key]) if rows[key][devices]["label"] is not None]
        if found:
            blocks += [line(Run(name, "accent", bold=True), indent=2), _of_row(found, view)]
    remark = "the best layout of each; acc: micro-batches of a step"
    return Section(title=f"{TITLES[source]} cells", remark=remark, blocks=tuple(blocks))


def _of_row(found: Sequence[View], view: View) -> Table:
    """The table of one row of the atlas."""
    packed = any(each["samples"] for each in found)
    layouts = [
        (word, cells) for word, name in FIELDS.items()
        if (cells := [_degree(each, name) for each in found]) and (word in _ALWAYS or not set(cells) <= NEUTRAL)
    ]
    head = ["MFU", "step", "GiB", *(["packs", "tokens\na pack"] if packed else []), *(word for word, _ in layouts)]
    rows = [
        (
            size_word(each, nodes=by_nodes(view)), _mfu(each), _s(each["step_s"] or None), _memory(each),
            *([f"{each['global_batch_sequences']:,}", f"{each['sequence_tokens']:,}"] if packed else []),
            *(cells[place] for _, cells in layouts),
        )
        for place, each in enumerate(found)
    ]
    groups = (range(1, 4), range(4, len(head) + 1))
    return table((_noun(view), *head), rows, right=range(1, len(head) + 1), groups=tuple(map(tuple, groups)), indent=4)


def _mfu(each: View) -> Run:
    return Run(mfu_word(each)) if each["mfu_ratio"] is None else Run(mfu_word(each), value=each["mfu_ratio"], unit="ratio")


def _memory(each: View) -> str | Run:
    held = each["memory_reserved_bytes"] or each["memory_peak_bytes"]
    if not held:
        return "-"
    capacity = each["memory_capacity_bytes"]
    return Run(f"{held / GIB:.1f}" + (f"/{capacity / GIB:.0f}" if capacity else ""), value=held, unit="bytes")


def _degree(each: View, name: str) -> str:
    value = (each["layout"] or {}).get(name)
    if name == "recompute" and value == "none":
        return "-"
    if name == "tensor_parallel" and (each["layout"] or {}).get("sequence_parallel") and value is not None:
        return f"{value}s"
    return "-" if value in (None, "") else f"{value}"


def _noun(view: View) -> str:
    return "nodes" if by_nodes(view) else "devices"


def linearity_section(view: View) -> Section:
    """How much of their throughput devices keep as there are more of them."""
    lines = [each for each in view["linearity"] if len(each["points"]) > 1]
    sizes = sorted({point["devices"] for each in lines for point in each["points"]})
    several = len({each["source"] for each in lines}) > 1
    rows = []
    for each in lines:
        kept = {point["devices"]: point["row_linearity_ratio"] for point in each["points"]}
        name = f"{each['series']}{', ' + each['source'] if several else ''}"
        rows.append((name, *(figure(kept[size], percent, 0) if size in kept else "" for size in sizes)))
    per_node = view["cells"][0]["devices_per_node"] if lines else 1
    heads = (f"{size // per_node if by_nodes(view) else size:,}" for size in sizes)
    columns = range(1, len(sizes) + 1)
    told = table((f"model \\ {_noun(view)}", *heads), rows, right=columns, groups=(tuple(columns),))
    remark = "tokens/s of a device, over the same on the fewest nodes of the row"
    return Section(title="Linearity", remark=remark, blocks=(told,) if lines else ())


def empty_section(view: View) -> Section:
    """Why cells are empty, a line for each reason of a row."""
    said: list[Block] = []
    nodes = by_nodes(view)
    for source in sources(view):
        for key, row in rows_of(view, source).items():
            for reason, cells in _reasons(row).items():
                where = ", ".join(size_word(each, nodes=nodes) for each in cells)
                noun = "node" if nodes else "device"
                said.append(line(f"{key[0]} on {where} {noun if where == '1' else noun + 's'}: {reason}", kind="item", indent=2))
    return Section(title="Empty cells", blocks=tuple(said))


def _reasons(row: Mapping[int, View]) -> dict[str, list[View]]:
    found: dict[str, list[View]] = {}
    for devices in sorted(row):
        each = row[devices]
        if each["label"] is None:
            lacks = f"lacks {lacking(each)} of " if each["missing_bytes"] is not None else ""
            found.setdefault(f"{lacks}{each['why']}", []).append(each)
    return found


def difference_section(view: View) -> Section:
    """Measured cells beside their predictions, and what sets the layouts apart."""
    blocks: list[Block] = [line(tally(view), indent=2)]
    found = [each for each in view["differences"] if each["verdict"] in {"same", "within", "other", "only measured"}]
    if found:
        size = {(each["series"], each["device"], each["devices"]): size_word(each, nodes=by_nodes(view)) for each in view["cells"]}
        names = [f"{each['series']}, {size[each['series'], each['device'], each['devices']]}" for each in found]
        rows = [
            (
                name, each["verdict"],
                *(_s(each[f"{which}_step_s"]) for which in ("predicted", "measured", "measured_layout")),
                {True: "yes", False: "no", None: "-"}[each["holds"]],
                "failed" if each["tried_failed"] else _s(each["tried_step_s"]) if each["tried_step_s"] else "not run",
            )
            for name, each in zip(names, found, strict=True)
        ]
        columns = range(1, len(COMPARED) + 1)
        blocks += [
            table((f"model, {_noun(view)}", *COMPARED), rows, right=columns, groups=(tuple(columns),)),
            line(WITHIN, kind="small", indent=2), line(HELD, kind="small", indent=2), *_apart(names, found),
        ]
    return Section(title="Predicted beside measured", blocks=tuple(blocks))


def _apart(names: Sequence[str], found: Sequence[View]) -> Iterator[Paragraph]:
    """Knob by knob what sets the best layouts apart."""
    apart = [(name, each) for name, each in zip(names, found, strict=True) if each["verdict"] != "same"]
    if apart:
        yield line(Run("What differs: predicted -> measured", "strong"), indent=2, above=True)
    for name, each in apart:
        yield line(f"{name}: {changes_word(each)}", kind="item", indent=2)


def _s(value: float | None) -> str | Run:
    return "-" if value is None else figure(value, seconds)
