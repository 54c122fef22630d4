"""Speed of the search in fresh processes, beside the scalar path: ``python -m benchmarks.search [--write FILE]``.

Every case is one process that starts cold, plans, and reports; layouts per second are ``evaluated`` over its wall time, and
decided ones those evaluated or left out by the bound.
The scalar path estimates layouts of the same case one at a time. Nothing is asserted: this machine's figures are its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SCALAR_S = 2.0
"""How long the scalar path is timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One case to plan."""

    name: str
    model: str
    device: str
    devices: int
    batch: int
    sequence: int


TASKS = (
    Task(name="llama3-70b, 64 nodes", model="llama3-70b", device="h100-sxm", devices=512, batch=1024, sequence=8192),
    Task(name="qwen3-235b, 32 nodes", model="qwen3-235b-a22b", device="h100-sxm", devices=256, batch=2048, sequence=4096),
    Task(name="deepseek-v3, 256 nodes", model="deepseek-v3", device="h800", devices=2048, batch=15360, sequence=4096),
    Task(name="llama3-70b, 98304 devices", model="llama3-70b", device="h100-sxm", devices=98304, batch=98304, sequence=8192),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one task took; the process's wall time includes its start."""

    name: str
    legal: int
    evaluated: int
    wall_s: float
    search_s: float
    peak_bytes: int
    layouts_per_s: float
    search_layouts_per_s: float
    scalar_layouts_per_s: float
    first: str

    @property
    def ratio(self) -> float:
        """Columns over scalars, both inside the process."""
        return self.search_layouts_per_s / self.scalar_layouts_per_s


def child(task: Task, *, scalar: bool) -> dict[str, object]:
    """Plan a task in this process, or time the scalar path on its first layouts."""
    from meshwright.api import find_plans, make_case
    from meshwright.catalog import cluster_for

    case = make_case(
        task.model, cluster_for(task.device, num_devices=task.devices), global_batch_sequences=task.batch,
        sequence_tokens=task.sequence,
    )
    result = find_plans(case)
    if scalar:
        from meshwright.estimate.evaluate import evaluate

        layouts = [plan.layout for plan in (*result.plans, *result.pareto)]
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < SCALAR_S:
            evaluate(case, layouts[done % len(layouts)])
            done += 1
        return {"scalar_layouts_per_s": done / (time.perf_counter() - begin)}
    return {
        "legal": result.legal, "evaluated": result.evaluated, "search_s": result.search_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "first": result.plans[0].label if result.plans else "nothing fits",
    }


def timing(task: Task) -> Timing:
    """Run a task in a fresh process and the scalar path in another."""

    def fresh(mode: str) -> tuple[dict[str, object], float]:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.search", "--child", task.name, "--mode", mode]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).resolve().parents[1])
        return json.loads(done.stdout), time.perf_counter() - begin

    found, wall_s = fresh("plan")
    scalar, _ = fresh("scalar")
    evaluated, search_s = int(str(found["evaluated"])), float(str(found["search_s"]))
    return Timing(
        name=task.name, legal=int(str(found["legal"])), evaluated=evaluated, wall_s=wall_s, search_s=search_s,
        peak_bytes=int(str(found["peak_bytes"])), layouts_per_s=evaluated / wall_s, search_layouts_per_s=evaluated / search_s,
        scalar_layouts_per_s=float(str(scalar["scalar_layouts_per_s"])), first=str(found["first"]),
    )


def help_s() -> float:
    """Wall time of ``meshwright --help`` in a fresh process, best of five."""

    def once() -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "meshwright", "--help"], check=True, capture_output=True)
        return time.perf_counter() - begin

    return min(once() for _ in range(5))


def table(found: list[Timing]) -> str:
    """The timings as a Markdown table."""
    lines = [
        "| case | legal | evaluated | wall s | decided/s of the process | evaluated/s of it | of the search | scalar "
        "| ratio | peak MB | first plan |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {each.name} | {each.legal:,} | {each.evaluated:,} | {each.wall_s:.2f} | {each.legal / each.wall_s:,.0f} "
        f"| {each.layouts_per_s:,.0f} "
        f"| {each.search_layouts_per_s:,.0f} | {each.scalar_layouts_per_s:,.0f} | {each.ratio:,.0f} | {each.peak_bytes / 1e6:.0f} "
        f"| {each.first} |"
        for each in found
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--write", type=Path, help="write the table to this file too")
    parser.add_argument("--child", choices=[task.name for task in TASKS], help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=("plan", "scalar"), default="plan", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        task = next(task for task in TASKS if task.name == options.child)
        sys.stdout.write(json.dumps(child(task, scalar=options.mode == "scalar")))
        return 0
    text = table([timing(task) for task in TASKS]) + f"\n`meshwright --help`: {help_s():.2f} s (best of five fresh processes)\n"
    sys.stdout.write(text)
    if options.write:
        options.write.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
