"""The report of ``atlas``: the map of MFU, its cells with their layouts, linearity, and what predicted and measured have apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from meshwright.report.atlas_scale import ink_on, ramp, share_of
from meshwright.report.figures import LEAST_NAMES, Column, Figures, plain_table
from meshwright.units import GIB
from meshwright.words import percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

Rows = dict[tuple[str, str], dict[int, "Mapping[str, Any]"]]
"""(Series, device) -> devices -> cell."""
COARSE = "~"
BLANKS = 1
"""Before the word of a cell."""
NEUTRAL = {"1", "-", ""}
TITLES = {"predicted": "Predicted", "measured": "Measured"}


def atlas_report(view: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Everything that ``atlas`` prints, from its JSON."""
    yield Padding(Text(title_of(view), style="bold"), (0, 0, 0, 0))
    for line in standing(view):
        yield Padding(Text(line, style="dim"), (0, 0, 0, 2))
    for source in sources(view):
        rows = rows_of(view, source)
        yield _heading(f"{TITLES[source]}: model FLOPs utilization", "of the dense peak of the devices")
        yield Padding(Map(rows=rows, by_nodes=by_nodes(view)), (0, 0, 0, 2))
        yield from _legend([cell for row in rows.values() for cell in row.values()])
    if "differences" in view:
        yield from differences(view)
    for source in sources(view):
        yield from _cells(view, source)
    yield from _linearity(view)
    yield from _why(view)
    for note in view["notes"]:
        yield Padding(Text(f"note: {note}"), (0, 0, 0, 2))


def _legend(cells: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """What stands in cells without a figure."""
    empty = [each for each in cells if each["label"] is None]
    if any(each["missing_bytes"] is not None for each in empty):
        words = "+N GiB: nothing fits; so much one device lacks for the least demanding layout"
        yield Padding(Text(words, style="dim"), (0, 0, 0, 2))
    if any(each["missing_bytes"] is None for each in empty):
        tried = any(each["source"] == "measured" for each in empty)
        words = "-: runs were tried, and none worked" if tried else "-: no layout is legal; why is said below"
        yield Padding(Text(words, style="dim"), (0, 0, 0, 2))


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
        return f"{cell['tokens_per_s_per_device']:,.0f}/s" if cell["tokens_per_s_per_device"] else "ran"
    return f"{COARSE if cell['grade'] == 'coarse' else ''}{percent(cell['mfu_ratio'])}"


def lacking(cell: Mapping[str, Any]) -> str:
    """Missing memory in whole GiB, upwards."""
    return f"{max(1, -(-cell['missing_bytes'] // GIB)):,.0f} GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Rows of models, columns of sizes, the MFU in each cell on its colour; columns that do not fit stand in a map below."""

    rows: Rows
    by_nodes: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One table, or several of as many columns as there is room for."""
        names, columns = names_of(self.rows), columns_of(self.rows)
        top = max((cell["mfu_ratio"] or 0.0 for row in self.rows.values() for cell in row.values()), default=0.0)
        widths = {
            each: max(cell_len(head_of(self.rows, each, nodes=self.by_nodes)),
                      *(cell_len(mfu_word(row.get(each))) for row in self.rows.values())) + BLANKS
            for each in columns
        }
        noun = "model \\ nodes" if self.by_nodes else "model \\ devices"
        longest = max(map(cell_len, (noun, *names.values())))
        name = longest if longest + sum(widths.values()) + len(widths) <= options.max_width else min(longest, LEAST_NAMES)
        rest = list(columns)
        while rest:
            taken = [rest.pop(0)]
            while rest and name + sum(widths[each] + 1 for each in (*taken, rest[0])) <= options.max_width:
                taken.append(rest.pop(0))
            table = plain_table()
            table.padding = (0, 0, 0, 0)
            table.add_column(noun, width=name, overflow="fold")
            for each in taken:
                head = head_of(self.rows, each, nodes=self.by_nodes)
                table.add_column(head, justify="right", no_wrap=True, min_width=widths[each])
            for key, row in self.rows.items():
                table.add_row(Text(names[key]), *(_shaded(row.get(each), top) for each in taken))
            yield table
            if rest:
                yield Text("")


def _shaded(cell: Mapping[str, Any] | None, top: float) -> Text:
    """A cell's word on the colour of its MFU."""
    word = f" {mfu_word(cell)}"
    if cell is None or cell["label"] is None:
        return Text(word, style="red" if cell is not None and cell["missing_bytes"] is not None else "dim")
    if cell["mfu_ratio"] is None:
        return Text(word)
    colour = ramp(share_of(cell["mfu_ratio"], top))
    return Text(word, style=f"{ink_on(colour)} on {colour}")


def _heading(title: str, remark: str = "") -> Padding:
    return Padding(Text.assemble((title, "bold"), (f"  {remark}" if remark else "", "dim")), (1, 0, 0, 0))


FIELDS: dict[str, str] = {
    "dp": "data_parallel", "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "vp": "virtual_stages",
    "ep": "expert_parallel", "etp": "expert_tensor_parallel", "mb": "microbatch_sequences", "acc": "num_microbatches",
    "zero": "zero_stage", "recompute": "recompute", "offload": "offload",
}
"""Columns of layouts; ``acc``: micro-batches of a step, which are accumulated."""
_ALWAYS = {"dp", "tp", "pp", "mb", "acc", "zero"}


def _cells(view: Mapping[str, Any], source: str) -> Iterator[RenderableType]:
    """Of each row a table: every size with its figures and the degrees of its layout."""
    rows, nodes = rows_of(view, source), by_nodes(view)
    names = names_of(rows)
    yield _heading(f"{TITLES[source]} cells", "the best layout of each; acc: micro-batches of a step")
    for key, row in rows.items():
        found = [row[devices] for devices in sorted(row) if row[devices]["label"] is not None]
        if not found:
            continue
        yield Padding(Text(names[key], style="bold cyan"), (0, 0, 0, 2))
        yield Padding(_of_row(found, "nodes" if nodes else "devices", nodes=nodes), (0, 0, 0, 4))


def _of_row(found: Sequence[Mapping[str, Any]], noun: str, *, nodes: bool) -> Figures:
    """The table of one row of the atlas."""
    speeds = [
        Column(heading="MFU", cells=[mfu_word(each) for each in found]),
        Column(heading="step", cells=[seconds(each["step_s"]) if each["step_s"] else "-" for each in found]),
        Column(heading="GiB", cells=[_memory(each) for each in found]),
    ]
    layouts = [
        Column(heading="packs", cells=[f"{each['global_batch_sequences']:,}" for each in found]),
        Column(heading="tokens\na pack", cells=[f"{each['sequence_tokens']:,}" for each in found]),
    ] if any(each["samples"] for each in found) else []
    layouts += [
        Column(heading=word, cells=cells) for word, name in FIELDS.items()
        if (cells := [_degree(each, name) for each in found]) and (word in _ALWAYS or not set(cells) <= NEUTRAL)
    ]
    return Figures(noun=noun, names=[size_word(each, nodes=nodes) for each in found], groups=[speeds, layouts])


def _memory(cell: Mapping[str, Any]) -> str:
    held = cell["memory_reserved_bytes"] or cell["memory_peak_bytes"]
    if not held:
        return "-"
    capacity = cell["memory_capacity_bytes"]
    return f"{held / GIB:.1f}" + (f"/{capacity / GIB:.0f}" if capacity else "")


def _degree(cell: Mapping[str, Any], name: str) -> str:
    value = (cell["layout"] or {}).get(name)
    if name == "recompute" and value == "none":
        return "-"
    if name == "tensor_parallel" and (cell["layout"] or {}).get("sequence_parallel") and value is not None:
        return f"{value}s"
    return "-" if value in (None, "") else f"{value}"


def _linearity(view: Mapping[str, Any]) -> Iterator[RenderableType]:
    """How much of their throughput devices keep as there are more of them."""
    lines = [each for each in view["linearity"] if len(each["points"]) > 1]
    if not lines:
        return
    nodes = by_nodes(view)
    sizes = sorted({point["devices"] for each in lines for point in each["points"]})
    per_node = view["cells"][0]["devices_per_node"]
    several = len({each["source"] for each in lines}) > 1
    names = [f"{each['series']}{', ' + each['source'] if several else ''}" for each in lines]
    cells = {
        size: [next((percent(point["row_linearity_ratio"], 0) for point in each["points"] if point["devices"] == size), "")
               for each in lines]
        for size in sizes
    }
    yield _heading("Linearity", "tokens/s of a device, over the same on the fewest nodes of the row")
    columns = [Column(heading=f"{size // per_node if nodes else size:,}", cells=cells[size]) for size in sizes]
    yield Padding(Figures(noun="model \\ nodes" if nodes else "model \\ devices", names=names, groups=[columns]), (0, 0, 0, 2))


def _why(view: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Why cells are empty, a line for each reason of a row."""
    nodes, said = by_nodes(view), list[str]()
    for source in sources(view):
        for key, row in rows_of(view, source).items():
            for reason, cells in _reasons(row).items():
                where = ", ".join(size_word(each, nodes=nodes) for each in cells)
                noun = "node" if nodes else "device"
                said.append(f"- {key[0]} on {where} {noun if where == '1' else noun + 's'}: {reason}")
    if said:
        yield _heading("Empty cells")
        for line in said:
            yield Padding(Text(line), (0, 0, 0, 2))


def _reasons(row: Mapping[int, Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for devices in sorted(row):
        cell = row[devices]
        if cell["label"] is None:
            lacks = f"lacks {lacking(cell)} of " if cell["missing_bytes"] is not None else ""
            found.setdefault(f"{lacks}{cell['why']}", []).append(cell)
    return found


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


def differences(view: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Measured cells beside their predictions, and what sets the layouts apart."""
    yield _heading("Predicted beside measured")
    yield Padding(Text(tally(view)), (0, 0, 0, 2))
    found = [each for each in view["differences"] if each["verdict"] in {"same", "within", "other", "only measured"}]
    if not found:
        return
    size = {(each["series"], each["device"], each["devices"]): size_word(each, nodes=by_nodes(view)) for each in view["cells"]}
    noun = "model, nodes" if by_nodes(view) else "model, devices"
    names = [f"{each['series']}, {size[each['series'], each['device'], each['devices']]}" for each in found]
    times = [
        Column(heading="best layout", cells=[each["verdict"] for each in found]),
        Column(heading="predicted\nto be best", cells=[_s(each["predicted_step_s"]) for each in found]),
        Column(heading="measured\nbest", cells=[_s(each["measured_step_s"]) for each in found]),
        Column(heading="predicted\nfor that", cells=[_s(each["measured_layout_step_s"]) for each in found]),
        Column(heading="held", cells=[{True: "yes", False: "no", None: "-"}[each["holds"]] for each in found]),
        Column(heading="own best\nmeasured", cells=[_tried(each) for each in found]),
    ]
    yield Padding(Figures(noun=noun, names=names, groups=[times]), (0, 0, 0, 2))
    for line in ("within: another layout whose predicted step lies in the interval of the first one's", HELD):
        yield Padding(Text(line, style="dim"), (0, 0, 0, 2))
    apart = [(name, each) for name, each in zip(names, found, strict=True) if each["verdict"] != "same"]
    if apart:
        yield Padding(Text("What differs: predicted -> measured", style="bold"), (1, 0, 0, 2))
    for name, each in apart:
        yield Padding(Text(f"- {name}: {changes_word(each)}"), (0, 0, 0, 2))


HELD = "held: the best measured step lies in the 90 % interval predicted for its layout"


def changes_word(each: Mapping[str, Any]) -> str:
    """What sets two layouts apart, by the words of a label."""
    if not each["changes"]:
        return VERDICTS[each["verdict"]]
    return ", ".join(f"{word} {one['predicted']} -> {one['measured']}" for word, one in each["changes"].items())


def _s(value: float | None) -> str:
    return "-" if value is None else seconds(value)


def _tried(each: Mapping[str, Any]) -> str:
    """What the layout that is predicted to be best measured."""
    if each["tried_failed"]:
        return "failed"
    return _s(each["tried_step_s"]) if each["tried_step_s"] else "not run"
