"""Our packing beside that of others on the same lengths, run from their own sources: limit, number, balance, time.

``python -m benchmarks.packing --sources DIR [--trials 400] [--steps FILE] [--record] [--write]``

``DIR`` holds checkouts (``packing_sources.py``). ``--record`` keeps what they pack of some draws in
``tests/packing/others.json``, which the modes are held to. ``--steps FILE``: the packed and the padded step of real PyTorch anew,
predicted from a cluster file of ``meshwright profile`` (``packing_step.py``); without it that section stays as it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import Any

import numpy as np

import meshwright as mw
from benchmarks.packing_sources import packers, slime_workloads
from meshwright.packing import Cost, figures, lower_bound, pack
from meshwright.words import percent

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORD = ROOT / "docs" / "packing-bench.md", ROOT / "tests" / "packing" / "others.json"
LIMIT, RANKS, SAMPLES = 8192, 4, 64
TITLES = {
    "meshwright": "**meshwright**", "chatlearn": "ChatLearn", "verl": "verl", "slime": "slime",
    "slime-flops": "slime, --balance-by-flops", "nemo-rl": "NeMo-RL", "trl": "TRL, bfd",
}
LARGE = 65_536
STEPS_TITLE = "## Packed and padded steps of PyTorch"
SHAPES = {
    "log-normal": "lognormal:median=1500,sigma=0.8,max=8192", "bimodal": "bimodal:low=500,high=6000,share=0.7,max=8192",
    "uniform": "uniform:max=8192",
}


def drawn(rng: Any, count: int = RANKS * SAMPLES) -> Any:
    """Lengths exp(N(7.3, 0.8)) + 64, at most 8000."""
    return np.minimum(np.exp(rng.normal(7.3, 0.8, count)).astype(np.int64) + 64, 8000)


def heavy(rng: Any, count: int) -> Any:
    """Many short answers and a long tail, as reasoning has them."""
    return np.minimum((rng.pareto(1.1, count) * 300 + 50).astype(np.int64), LIMIT)


@dataclass(slots=True)
class Column:
    """What one program did in every trial."""

    rank_batches_over: list[float] = field(default_factory=list)
    worst: int = 0
    microbatches: list[int] = field(default_factory=list)
    waste: list[float] = field(default_factory=list)
    imbalance: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)


def compared(folder: Path, trials: int, cost: Cost) -> dict[str, Column]:
    """All programs on the same draws."""
    every: dict[str, Any] = {"meshwright": lambda lengths, limit, ranks: pack(lengths, limit, ranks, cost)}
    every |= packers(folder)
    columns = {name: Column() for name in every}
    rng = np.random.default_rng(0)
    for _ in range(trials):
        lengths = drawn(rng)
        for name, packer in every.items():
            begin = process_time()
            dealt = packer(lengths, LIMIT, RANKS)
            spent = process_time() - begin
            found, column = figures(dealt, lengths, LIMIT, cost), columns[name]
            over = [any(lengths[each].sum() > LIMIT for each in rank) for rank in dealt]
            column.rank_batches_over.append(mean(over))
            column.worst = max(column.worst, found.most_tokens)
            column.microbatches.append(found.most_of_a_rank)
            column.waste.append(1 - found.tokens / (found.most_of_a_rank * RANKS * LIMIT))
            column.imbalance.append(found.imbalance_ratio)
            column.cpu_s.append(spent)
            column.kept.append(found.overflows == 0)
    return columns


def table(columns: dict[str, Column]) -> list[str]:
    """One row a program."""
    ours = columns["meshwright"]
    lines = [
        "| program | rank batches above the limit | fullest, tokens | micro-batches of a rank | padding | dearest rank above the "
        "mean: median, worst | CPU, ms | draws it keeps the limit in | of these ours as even | ours no more |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, each in columns.items():
        kept = [place for place, well in enumerate(each.kept) if well]
        even = [ours.imbalance[place] <= each.imbalance[place] for place in kept]
        fewer = [ours.microbatches[place] <= each.microbatches[place] for place in kept]
        shares = [percent(mean(one)) if kept else "none" for one in (even or [0], fewer or [0])]
        cells = [
            TITLES[name], percent(mean(each.rank_batches_over)), f"{each.worst:,}", f"{mean(each.microbatches):.2f}",
            percent(mean(each.waste)), f"{percent(median(each.imbalance) - 1, 4)}, {percent(max(each.imbalance) - 1, 3)}",
            f"{1e3 * median(each.cpu_s):.1f}", percent(mean(each.kept)), *(["", ""] if name == "meshwright" else shares),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def large(cost: Cost) -> list[str]:
    """A global batch of 65,536 samples."""
    lines = [
        "| lengths | ranks | CPU, s | micro-batches | Martello-Toth L2, shared by the ranks | above it "
        "| dearest rank above the mean |",
        "|:--|--:|--:|--:|--:|--:|--:|",
    ]
    rng = np.random.default_rng(1)
    every = {name: mw.PackRequest(distribution=f"{text},n={LARGE}") for name, text in SHAPES.items()}
    lengths = {name: _drawn(each) for name, each in every.items()} | {"heavy tail": heavy(rng, LARGE)}
    for name, sizes in lengths.items():
        for ranks in (8, 64):
            times = []
            for _ in range(5):
                begin = process_time()
                dealt = pack(sizes, LIMIT, ranks, cost)
                times.append(process_time() - begin)
            found = figures(dealt, sizes, LIMIT, cost)
            bound = -(-lower_bound(sizes, LIMIT) // ranks) * ranks
            assert found.overflows == 0
            lines.append(
                f"| {name} | {ranks} | {min(times):.2f} | {found.microbatches:,} | {bound:,} "
                f"| {percent(found.microbatches / bound - 1, 2)} | {percent(found.imbalance_ratio - 1, 4)} |"
            )
    return lines


def _drawn(request: mw.PackRequest) -> Any:
    from meshwright.packing.drawn import distribution

    return distribution(str(request.distribution)).draw()


def recorded(folder: Path) -> dict[str, Any]:
    """What the sources pack of some draws, and their commits."""
    rng, cases = np.random.default_rng(5), []
    theirs = packers(folder)
    for count, ranks, limit in ((8, 1, 8192), (24, 2, 8192), (37, 1, 9000), (48, 4, 8192), (64, 2, 16_384), (96, 4, 8192)):
        lengths = drawn(rng, count)
        if count in (24, 64):
            lengths = (lengths // 256 + 1) * 256  # many alike
        case: dict[str, Any] = {"lengths": lengths.tolist(), "ranks": ranks, "limit": limit, "packed": {}}
        for name, packer in theirs.items():
            case["packed"][name] = [[list(map(int, each)) for each in rank] for rank in packer(lengths, limit, ranks)]
        if "slime-flops" in theirs:
            case["workloads"] = slime_workloads(lengths).tolist()
        cases.append(case)
    return {"sources": {path.name: _commit(path) for path in sorted(folder.iterdir()) if path.is_dir()}, "cases": cases}


def _commit(folder: Path) -> str:
    kept = folder / "COMMIT"
    if kept.exists():
        return kept.read_text(encoding="utf-8").strip()[:9]
    done = subprocess.run(["git", "-C", folder, "rev-parse", "--short=9", "HEAD"], capture_output=True, check=True, text=True)
    return done.stdout.strip()


def page(columns: dict[str, Column], cost: Cost, commits: dict[str, str], trials: int, steps: list[str]) -> str:
    """The page of the tables."""
    chatlearn = columns.get("chatlearn")
    more = ""
    if chatlearn is not None and not all(chatlearn.kept):
        over = [place for place, kept in enumerate(chatlearn.kept) if not kept]
        costs = mean(columns["meshwright"].microbatches[place] - chatlearn.microbatches[place] for place in over)
        more = f"Where ChatLearn is above its limit, ours are {costs:+.2f} micro-batches of a rank beside its own.\n"
    where = ", ".join(f"{name} {commit}" for name, commit in commits.items())
    return "\n".join([
        "# Packing beside others", "",
        "Written by `python -m benchmarks.packing --write`, with the others run from their own sources",
        f"({where}).", "",
        f"{trials} draws of {RANKS} ranks with {SAMPLES} samples each, exp(N(7.3, 0.8)) + 64 tokens, at most 8,000;",
        f"limit {LIMIT:,} tokens. Cost is that of Llama 3 8B on an H100 by the cost model: attention costs as much as all else at",
        f"{cost.crossover_tokens():,.0f} tokens. ChatLearn packs each rank's own samples and takes the maximum of the",
        "ranks, as with expert parallelism; the others share the samples of all ranks. Micro-batches of a rank are those of the",
        "rank with most: what a step waits for. CPU is the median call.", "",
        *table(columns), "", more,
        f"## {LARGE:,} samples", "", "Best of five calls, one core.", "", *large(cost), "", *steps,
    ]) + "\n"


def kept_steps(page: str) -> list[str]:
    """The section of PyTorch's steps as it stands on a page."""
    _, title, rest = page.partition(f"{STEPS_TITLE}\n")
    return [STEPS_TITLE, *rest.rstrip("\n").split("\n")] if title else []


def main() -> None:
    """Compare, print, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--steps", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.record:
        RECORD.write_text(json.dumps(recorded(asked.sources), separators=(",", ":")) + "\n", encoding="utf-8")
    case = mw.PackRequest(
        distribution="lognormal:n=512", model="llama3-8b", device="h100-sxm", nodes=1, task="sft", layout="tp2 mb1 sp zero1",
        max_tokens=LIMIT,
    )
    cost = mw.pack(case).packed.rules.cost
    if asked.steps is not None:
        from benchmarks.packing_step import lines

        steps = lines(asked.steps)
    else:
        steps = kept_steps(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")
    commits = {path.name: _commit(path) for path in sorted(asked.sources.iterdir()) if path.is_dir()}
    text = page(compared(asked.sources, asked.trials, cost), cost, commits, asked.trials, steps)
    print(text)
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
