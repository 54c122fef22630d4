"""MindSpore's memory tracker (``MS_ALLOC_CONF=memory_tracker:True``): ``memory_block.csv``, a row for each block of the pool.

Times count tasks, not seconds; a block that was never given back ends beyond all of them. Columns differ by version
(``mindspore/ccsrc/.../mem_tracker.cc``, 2.3 to 2.10) and are found by their names.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from meshwright.domain.observed import MemorySnapshot
from meshwright.readers.formats import Format
from meshwright.readers.lines import lines
from meshwright.readers.loose import amount, whole
from meshwright.readers.memory.replay import Change, replayed

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_BLOCKS = 3_000_000
NEVER = 2**62
MAX_SIZE = 2**60
PERSISTENT = "SomasOutput"
"""Blocks within one of a compiled graph's own plan, which has a row of its own."""
NAMES = ("file_name", "node_name", "task_name", "type")
LIBRARIES = ("nn/cell.py", "site-packages/mindspore", "traceback")


def read(source: Source) -> tuple[MemorySnapshot, ...]:
    """The pool's peak, who held it, and what was never given back."""
    columns: dict[str, int] = {}
    ordered: list[tuple[int, int, Change]] = []
    actual = 0.0
    bad = blocks = 0
    for line in lines(source):
        cells = next(csv.reader([line.text]), [])
        if "start_time_stamp" in cells and "size" in cells:
            columns = {name.strip(): index for index, name in enumerate(cells) if name.strip()}
            continue
        if not columns:
            continue
        row = {name: cells[index] for name, index in columns.items() if index < len(cells)}
        start, end, size = whole(row.get("start_time_stamp")), whole(row.get("end_time_stamp")), whole(row.get("size"))
        actual = max(actual, amount(row.get("actual_peak_memory")) or 0.0)
        if size is None or not 0 < size <= MAX_SIZE or start is None:
            bad += 1
            continue
        if start < 0 or (row.get("type") == PERSISTENT and start <= 0):
            continue
        blocks += 1
        if blocks > MAX_BLOCKS:
            break
        ordered.append((start, 1, Change(start, blocks, size, _holder(row))))
        if end is not None and start <= end < NEVER:
            ordered.append((end, 0, Change(end, blocks, 0)))
    if not ordered:
        return ()
    ordered.sort(key=lambda each: each[:2])
    replay = replayed([change for _, _, change in ordered])
    notes = ["times count tasks, not seconds"]
    if bad:
        notes.append(f"{bad:,} rows have no size or no time")
    if blocks > MAX_BLOCKS:
        notes.append(f"only the first {MAX_BLOCKS:,} blocks are read")
    return (MemorySnapshot(
        file=source.shown, format="mindspore_memory", device=None, reserved_bytes=int(max(actual, replay.peak_bytes)),
        allocated_bytes=replay.end_bytes, active_bytes=replay.end_bytes, num_segments=0,
        events=(("alloc", min(blocks, MAX_BLOCKS)),), peak_bytes=replay.peak_bytes, holders=replay.holders, notes=tuple(notes)),)


def _holder(row: dict[str, str]) -> str:
    """Who a block is of: the user's frame where it stands, else the file, the operator or the kind of block."""
    name = _innermost(row.get("python_stack", "")) or next((row[each].strip() for each in NAMES if row.get(each, "").strip()), "")
    if name == row.get("file_name", "").strip() and row.get("line_num", "").strip():
        name = f"{name}:{row['line_num'].strip()}"
    return name[:200]


def _innermost(stack: str) -> str:
    """``function (file:line)`` of the innermost frame outside of MindSpore: the last of ``File:f;Line:n;Function:g|...``."""
    for frame in reversed(stack.split("|")):
        parts = dict(each.split(":", 1) for each in frame.split(";") if ":" in each)
        file = parts.get("File", "").strip()
        if file and not any(each in file for each in LIBRARIES):
            return f"{parts.get('Function', '').strip()} ({file}:{parts.get('Line', '').strip()})"
    return ""


def _told(sample: bytes) -> bool:
    head = sample[:4096].split(b"\n", 1)[0]
    return b"start_time_stamp" in head and b"end_time_stamp" in head and b"size" in head


FORMAT = Format(name="mindspore_memory", says="blocks of MindSpore's memory tracker", told=_told, read=read)
