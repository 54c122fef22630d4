"""How fast a trace of a gigabyte is read, and in how much memory: ``python -m benchmarks.trace_speed [--gigabytes 1] [--write]``.

The file is a real trace repeated: header once, then all its events again and again, each time with times, correlations and ids
shifted past those of the one before, so that launches are found and steps follow each other. Each reader is a process of its own
on one core. The yardstick is what has to be done at least: the same pieces of eight mebibytes, decoded by msgspec as events of
seven typed fields, and nothing kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "trace-speed.md"
SAMPLES = {
    "ResNet-50, V100, 2021": "kineto_resnet50_num_workers_0.worker0.1623143089861.pt.trace.json.gz",
    "ResNet, 8 MI300X, 2026": "tracelens_mi300_resnet_act_checkpoint.json.gz",
}
REPEATS = 3
PIECE = 8 << 20
_TIME = re.compile(rb'("ts": ?)([0-9]+)')
_ID = re.compile(rb'("(?:correlation|[Ee]xternal id|id|Ev Idx|Python id|Python parent id)": ?)([0-9]+)')
ID_STRIDE = 1_000_000


def repeated(sample: bytes, path: Path, size: int) -> tuple[int, int]:
    """Write a trace of about ``size`` bytes; how many repetitions it has, and its bytes."""
    start = sample.index(b"[", sample.index(b'"traceEvents"')) + 1
    end = sample.rindex(b"}", 0, re.search(rb"\}\s*\](?=[^\[\]]*\Z)", sample).end()) + 1  # type: ignore[union-attr]
    head, events, tail = sample[:start], sample[start:end], sample[end:]
    times = [int(found[2]) for found in _TIME.finditer(events)]
    times = sorted(times)[len(times) // 100:]
    period = times[-1] - times[0] + 1000
    count = 0
    with path.open("wb") as stream:
        stream.write(head)
        while stream.tell() < size:
            shift, ids = count * period, count * ID_STRIDE
            moved = _TIME.sub(lambda found, shift=shift: found[1] + b"%d" % (int(found[2]) + shift), events)
            moved = _ID.sub(lambda found, ids=ids: found[1] + b"%d" % (int(found[2]) + ids), moved)
            stream.write((b",\n" if count else b"") + moved)
            count += 1
        stream.write(tail)
        return count, stream.tell()


def plain(path: Path) -> str:
    """The yardstick: typed events in pieces, cut at one learned boundary."""
    import msgspec

    class Event(msgspec.Struct, gc=False):
        ph: str = ""
        cat: str = ""
        name: str = ""
        ts: float = 0.0
        dur: float = 0.0
        pid: int | str = 0
        tid: int | str = 0

    decoder, count, boundary = msgspec.json.Decoder(list[Event]), 0, b""
    with path.open("rb") as stream:
        text = stream.read(PIECE)
        text = text[text.index(b"[", text.index(b'"traceEvents"')) + 1:]
        boundary = re.search(rb"\}(\s*),(\s*)\{\s*\"ph\"", text)[0]  # type: ignore[index]
        while piece := stream.read(PIECE):
            text += piece
            cut = text.rindex(boundary) + 1
            count += len(decoder.decode(b"[" + text[:cut].lstrip(b" \r\n,") + b"]"))
            text = text[cut:]
    end = re.search(rb"\}\s*\](?=[^\[\]]*\Z)", text)
    count += len(decoder.decode(b"[" + text[:end.start() + 1].lstrip(b" \r\n,") + b"]")) if end else 0
    return f"{count} events"


def whole(path: Path) -> str:
    """This reader, all of it."""
    from meshwright.readers.source import Source
    from meshwright.readers.traces import kineto

    (trace,) = kineto.read(Source(path))  # type: ignore[misc]
    return f"{trace.events} events, {trace.num_kernels} kernels, idle {100 * trace.split.idle_s / trace.split.window_s:.2f} %"


def hta(path: Path) -> str:
    """HTA: its parser, and the two tables that hold what the reader says."""
    from hta.trace_analysis import TraceAnalysis

    found = TraceAnalysis(trace_files={0: str(path)}, trace_dir="/")
    breakdown = found.get_temporal_breakdown(visualize=False)
    found.get_comm_comp_overlap(visualize=False)
    return f"idle {float(breakdown['idle_time_pctg'].iloc[0]):.2f} %"


def tracelens(path: Path) -> str:
    """TraceLens: its tree of events, and the table that holds what the reader says."""
    from TraceLens import TreePerfAnalyzer

    table = TreePerfAnalyzer.from_file(str(path)).get_df_gpu_timeline().set_index("type")
    return f"idle {float(table.loc['idle_time', 'percent']):.2f} %"


READERS: dict[str, Callable[[Path], str]] = {"plain": plain, "whole": whole, "hta": hta, "tracelens": tracelens}
LONGEST_S = 900


@dataclass(frozen=True)
class Run:
    """One reading: CPU seconds, most memory, and what it said."""

    cpu_s: float
    memory_bytes: float
    said: str


def timed(reader: str, path: Path, python: str) -> Run:
    """A reader in a process of its own on one core."""
    command = [python, __file__, "--reader", reader, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return Run(nan, nan, f"did not end within {LONGEST_S} s")
    if done.returncode:
        return Run(nan, nan, (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:200])
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def one(reader: str, path: Path) -> None:
    """What a process of ``timed`` does."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    said = READERS[reader](path)
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    status = Path("/proc/self/status").read_text(encoding="ascii")  # ru_maxrss begins with what the parent had
    memory = int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024
    print(json.dumps({"cpu_s": sum(each.ru_utime + each.ru_stime for each in used), "memory_bytes": memory, "said": said}))


def middle(runs: list[Run]) -> Run:
    """The run in the middle by CPU time."""
    return sorted(runs, key=lambda each: each.cpu_s)[len(runs) // 2]


def page(gigabytes: float, peers: str, repeats: int = REPEATS) -> str:
    """The page: runs are taken in turn, and of each reader the middle one is shown."""
    from benchmarks.samples import directory

    samples, lines, beside = directory(), [], []
    if samples is None:
        sys.exit("MESHWRIGHT_SAMPLES names no directory")
    for name, file in SAMPLES.items():
        sample = gzip.decompress((samples / "chrome_trace" / file).read_bytes())
        with tempfile.TemporaryDirectory() as directory_name:
            path = Path(directory_name) / "trace.json"
            count, size = repeated(sample, path, int(gigabytes * 1e9))
            runs: dict[str, list[Run]] = {"plain": [], "whole": []}
            for _ in range(repeats):
                for reader, found in runs.items():
                    found.append(timed(reader, path, sys.executable))
            least, own = middle(runs["plain"]), middle(runs["whole"])
            for what, run in (("typed msgspec pass, nothing kept", least), ("**this reader, everything**", own)):
                lines.append(_row(f"{name}, {count} times: {size / 1e9:.2f} GB", what, run, least))
            if peers:
                count, size = repeated(sample, path, int(gigabytes * 1e8))
                own = timed("whole", path, sys.executable)
                found = [("this reader", own), *((each, timed(each, path, peers)) for each in ("hta", "tracelens"))]
                beside += [_row(f"{name}, {count} times: {size / 1e6:.0f} MB", what, run, own) for what, run in found]
    text = HEAD + "\n".join(lines) + "\n"
    return text + (BESIDE + "\n".join(beside) + "\n" if beside else "")


def _row(file: str, what: str, run: Run, least: Run) -> str:
    figures = f"{run.cpu_s:.1f} | {run.cpu_s / least.cpu_s:.2f} | {run.memory_bytes / 1e6:.0f}" if run.cpu_s > 0 else "| |"
    return f"| {file} | {what} | {figures} | {run.said} |"


HEAD = """# A trace of a gigabyte

Written by `python -m benchmarks.trace_speed --write`. A real trace is repeated until it is as large, each time with times,
correlations and ids shifted past those before. Each reader is a process of its own on one core; runs are taken in turn, three of
each, and the middle one is shown. The yardstick is what has to be done at least: pieces of 8 MiB, decoded by msgspec as events of
seven typed fields, and nothing kept. At most twice its CPU time and 500 MB are allowed.

| file | reader | CPU s | ratio | memory, MB | what it says |
|:--|:--|--:|--:|--:|:--|
"""
BESIDE = """
## Beside others

The same on a tenth of the size, which others hold in memory: HTA 0.5.0's parser with its temporal breakdown and overlap, and the
tree of TraceLens (main of August 2026) with its table of the device's time, as their own documentation begins. Shares differ where
windows do: this reader takes the device's first event to its last; TraceLens takes what it can link to a launch (of the MI300X
trace three kernels in four, and so does this reader's window of steps), HTA the same without the last step.

| file | reader | CPU s | times this reader | memory, MB | what it says |
|:--|:--|--:|--:|--:|:--|
"""


def main() -> None:
    """Print the page, or renew it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--peers", default="", help="a Python that has HolisticTraceAnalysis and TraceLens")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = page(given.gigabytes, given.peers)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reader"]:
        one(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
