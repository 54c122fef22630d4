"""One run of the reference step: how long its steps took, where its memory is, and the estimate beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Run, figure, line, table
from meshwright.units import GIB
from meshwright.words import gib, percent, plural, seconds, signed, speed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.report.blocks import Block, Table

    View = Mapping[str, Any]


def step_report(view: View) -> Iterator[Block]:
    """The figures of a run."""
    yield line(Run(f"{view['model']}: {view['label']}", bold=True))
    yield line(f"{plural(view['world'], 'rank')} on {view['device']}, torch {view['torch']}")
    predicted = view["estimate"] is not None
    head, rows = ("", "measured", "predicted", "error"), list(_rows(view))
    yield table(head if predicted else head[:2], rows if predicted else [row[:2] for row in rows], right=[1, 2, 3],
                look="ruled" if predicted else "plain", above=True)
    yield _ranks(view)


def _rows(view: View) -> Iterator[tuple[str | Run, ...]]:
    step, said = view["step"], view["estimate"]
    error = "" if view["error_ratio"] is None else signed(view["error_ratio"], 0)
    yield "step, median", figure(view["step_s"], seconds), "" if said is None else figure(said["step_s"], seconds), error
    yield f"step, {plural(len(view['steps_s']), 'step')}", f"{seconds(step['min_s'])} to {seconds(step['max_s'])}", "", ""
    yield "tokens/s", figure(view["tokens_per_s"], speed), "" if said is None else figure(said["tokens_per_s"], speed), ""
    if view["mfu_ratio"] is not None:
        predicted = "" if said is None else figure(said["mfu_ratio"], percent)
        yield f"MFU ({view['flops_convention']})", figure(view["mfu_ratio"], percent), predicted, ""
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
    names = [name for name, size in view["ranks"][0]["memory_bytes"].items() if size is not None]
    rows = []
    for rank in view["ranks"]:
        sizes = [rank["memory_bytes"][name] for name in names]
        rows.append((str(rank["rank"]), str(rank["stage"]), *("" if size is None else _size(size) for size in sizes)))
    return table(("rank", "stage", *names), rows, right=range(1, len(names) + 2), above=True)


def _size(size_bytes: float) -> str:
    return gib(size_bytes) if size_bytes >= GIB / 8 else f"{size_bytes / 2**20:,.1f} MiB"
