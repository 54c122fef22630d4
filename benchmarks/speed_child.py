"""What ``benchmarks.speed`` measures inside a process, written for any commit: ``python speed_child.py MODE NAME``, JSON out."""

from __future__ import annotations

import cProfile
import inspect
import io
import json
import pstats
import resource
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

SPACES: dict[str, tuple[str, str, int, int, int]] = {
    "llama3-70b on 64 nodes": ("llama3-70b", "h100-sxm", 512, 1024, 8192),
    "deepseek-v3 on 256 nodes": ("deepseek-v3", "h800", 2048, 15360, 4096),
    "qwen3-235b on 32 nodes": ("qwen3-235b-a22b", "h100-sxm", 256, 2048, 4096),
    "gpt-oss-120b on 64 nodes": ("gpt-oss-120b", "h100-sxm", 512, 1024, 8192),
    "llama3-70b on 98,304 devices": ("llama3-70b", "h100-sxm", 98304, 98304, 8192),
    "deepseek-v3 on 384 nodes": ("deepseek-v3", "h800", 3072, 46080, 4096),
}
"""Name -> model, device, devices, global batch, sequence."""
STAGES = {
    "start: imports": ("_find_and_load",), "start: catalogue and case": ("drafted", "setup"), "grid": ("evaluate_grid",),
    "refine": ("refine",), "fill stages anew": ("rebalanced",), "estimate and simulate": ("estimate",),
    "framework's rules": ("check",), "report": ("print_report",),
}
"""What a plan spends its time on -> names of the function whose time that is, all below it counted; some stand below others."""
ROUNDS, MANY, ENOUGH_S, WHAT_IFS = 2, 12, 1.0, 20
"""A grid is searched twice at least, and as often as a second allows; layouts of which a what-if is asked."""


def prepared(name: str) -> Any:
    """A case, its framework, and the pool of its grid."""
    from meshwright.api import make_case
    from meshwright.catalog import cluster_for
    from meshwright.frameworks import framework
    from meshwright.search.finalists import Finalists
    from meshwright.search.space import make_space, parse_pins

    model, device, devices, batch, sequence = SPACES[name]
    cluster = cluster_for(device, num_devices=devices)
    case = make_case(model, cluster, global_batch_sequences=batch, sequence_tokens=sequence)
    runner = framework("megatron").for_case(case)
    words = runner.features.overlap_words(case.training.optimizer.name)
    overlap = import_module("meshwright.search.nearest").overlap_for(case, words=words)  # its home has moved since

    def pool() -> Any:
        space = make_space(case, runner.features, devices, parse_pins({}))
        return Finalists(space=space, overlap=overlap, objective="step-time", capacity_bytes=case.capacity_bytes)

    return case, pool, overlap


def grid(name: str, *, barred: bool) -> dict[str, object]:
    """The grid searched: CPU seconds, counts, and the best that are kept."""
    from meshwright.domain.label import label
    from meshwright.search.grid import Counts, evaluate_grid

    _, pool, overlap = prepared(name)
    able = "bar" in inspect.signature(evaluate_grid).parameters
    seconds: list[float] = []
    while len(seconds) < ROUNDS or (sum(seconds) < ENOUGH_S and len(seconds) < MANY):
        kept, counts = pool(), Counts()
        begin = time.process_time()
        for rows in evaluate_grid(kept.space, counts, overlap=overlap, **({"bar": kept} if barred and able else {})):
            kept.add(rows)
        seconds.append(time.process_time() - begin)
    best = {label(each.layout): (each.step_s, each.reserved_bytes) for each in kept.best}
    return {
        "cpu_s": min(seconds), "legal": counts.legal, "evaluated": counts.evaluated, "best": best,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def profile(name: str) -> dict[str, object]:
    """A cold plan under the profiler: its CPU seconds, the share of each stage, and the functions that take most themselves."""
    model, device, devices, batch, sequence = SPACES[name]
    words = ["plan", model, "--device", device, "--devices", devices, "--global-batch", batch, "--sequence", sequence]
    profiler = cProfile.Profile(time.process_time)
    with redirect_stdout(io.StringIO()):
        profiler.enable()
        from meshwright.cli import main

        main([str(word) for word in words])
        profiler.disable()
    found: Any = pstats.Stats(profiler)
    rows = {(path, function): own for (path, _, function), own in found.stats.items()}
    share = {
        stage: max((own[3] for (_, function), own in rows.items() if function in wanted), default=0.0) / found.total_tt
        for stage, wanted in STAGES.items()
    }
    most = sorted(rows.items(), key=lambda item: -item[1][2])[:12]
    heavy = [(f"{path.rpartition('/')[2].lstrip('~')} {function}".strip(), own[0], own[2]) for (path, function), own in most]
    return {"cpu_s": found.total_tt, "share": share, "heavy": heavy}


def warm(name: str) -> dict[str, object]:
    """A prepared case: CPU seconds of a what-if, of a first plan and of one with a changed pin."""
    from dataclasses import replace

    from meshwright.api import prepare
    from meshwright.search import SearchOptions

    case, _, _ = prepared(name)
    asked = prepare(case)
    begin = time.process_time()
    first = asked.plan()
    plan_s = time.process_time() - begin
    layout = first.plans[0].layout
    others = [replace(layout, num_microbatches=layout.num_microbatches + more) for more in range(1, WHAT_IFS + 1)]
    each = []
    for other in others:
        begin = time.process_time()
        asked.what_if(other)
        each.append(time.process_time() - begin)
    begin = time.process_time()
    asked.plan(SearchOptions(pins={"tp": str(first.plans[-1].layout.tensor_parallel)}))
    return {"plan_s": plan_s, "what_if_s": sorted(each)[len(each) // 2], "again_s": time.process_time() - begin}


if __name__ == "__main__":
    mode, space = sys.argv[1:]
    found = grid(space, barred=mode == "search") if mode in ("grid", "search") else {"profile": profile, "warm": warm}[mode](space)
    sys.stdout.write(json.dumps(found))
