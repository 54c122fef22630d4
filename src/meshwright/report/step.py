"""One run of the reference step: how long its steps took, where its memory is, and the estimate beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.units import GIB
from meshwright.words import gib, integer, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType


    View = Mapping[str, Any]


def step_report(view: View) -> Iterator[RenderableType]:
    """The figures of a run."""
    yield Text(f"{view['model']}: {view['label']}", style="bold")
    yield Text(f"{plural(view['world'], 'rank')} on {view['device']}, torch {view['torch']}")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), show_header=view["estimate"] is not None)
    table.add_column("")
    table.add_column("measured", justify="right")
    if view["estimate"] is not None:
        table.add_column("predicted", justify="right")
        table.add_column("error", justify="right")
    for row in _rows(view):
        table.add_row(*(row if view["estimate"] is not None else row[:2]))
    yield Padding(table, (1, 0, 1, 2))
    yield Padding(_ranks(view), (0, 0, 0, 2))


def _rows(view: View) -> Iterator[tuple[str, str, str, str]]:
    step, said = view["step"], view["estimate"]
    error = "" if view["error_ratio"] is None else f"{100 * view['error_ratio']:+z.0f} %"
    yield "step, median", seconds(view["step_s"]), "" if said is None else seconds(said["step_s"]), error
    yield f"step, {plural(len(view['steps_s']), 'step')}", f"{seconds(step['min_s'])} to {seconds(step['max_s'])}", "", ""
    yield "tokens/s", integer(view["tokens_per_s"]), "" if said is None else integer(said["tokens_per_s"]), ""
    if view["mfu_ratio"] is not None:
        yield (
            f"MFU ({view['flops_convention']})",
            percent(view["mfu_ratio"]),
            "" if said is None else percent(said["mfu_ratio"]),
            "",
        )
    peaks = [rank["memory_peak_bytes"] for rank in view["ranks"] if rank["memory_peak_bytes"] is not None]
    if peaks:
        yield "memory, fullest rank", _size(max(peaks)), "" if said is None else _size(said["memory_peak_bytes"]), ""
    exposed = [rank["communication_exposed_s"] for rank in view["ranks"] if rank["communication_exposed_s"] is not None]
    if exposed:
        most = max(exposed)
        yield "exposed communication", f"{seconds(most)} ({percent(most / view['step_s'])})", "", ""
    yield "loss", f"{view['losses'][0]:.4f} to {view['losses'][-1]:.4f}", "", ""


def _ranks(view: View) -> Table:
    """Memory by category of every rank."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    names = [name for name in view["ranks"][0]["memory_bytes"] if view["ranks"][0]["memory_bytes"][name] is not None]
    for place, name in enumerate(("rank", "stage", *names)):
        table.add_column(name, justify="right" if place else "left")
    for rank in view["ranks"]:
        sizes = [rank["memory_bytes"][name] for name in names]
        table.add_row(str(rank["rank"]), str(rank["stage"]), *("" if size is None else _size(size) for size in sizes))
    return table


def _size(size_bytes: float) -> str:
    return gib(size_bytes) if size_bytes >= GIB / 8 else f"{size_bytes / 2**20:,.1f} MiB"
