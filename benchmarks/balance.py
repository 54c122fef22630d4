"""The stage balance on published and large cases: ``python -m benchmarks.balance [--write]`` (renews ``docs/balance.md``).

Published answers beside ours, 126 layers on 16 stages, and a documented ladder of recomputation beside the cost model's. Each
problem is solved in this process, one after the other; seconds are this machine's.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.balance_cases import LADDER, LADDER_BYTES, LARGE, PUBLISHED, Published, Rung
from meshwright.domain.balance import Balance
from meshwright.search.balance.solve import balance
from meshwright.words import percent, signed

if TYPE_CHECKING:
    from meshwright.domain.balance import BalanceProblem
    from meshwright.domain.estimate import Estimate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "balance.md"


def solved(problem: BalanceProblem) -> tuple[Balance, str]:
    """The answer under the usual time limit; seconds of wall time and of the processor."""
    begin = time.process_time()
    found = balance(problem)
    assert isinstance(found, Balance)
    return found, f"{found.solve_s:.2f} ({time.process_time() - begin:.2f})"


def predicted(rung: Rung, calibration: str) -> Estimate:
    """The cost model's estimate of a rung of the ladder."""
    from meshwright.api import make_case
    from meshwright.catalog import cluster_for
    from meshwright.domain.label import parse_layout
    from meshwright.estimate import estimate

    case = make_case(
        "llama2-13b", cluster_for("ascend-910b", num_devices=rung.devices), global_batch_sequences=rung.batch,
        sequence_tokens=4096, framework="mindformers", implementation="mindspore", gradient_dtype="bf16", calibration=calibration,
    )
    layout = parse_layout(rung.layout, num_devices=rung.devices, global_batch_sequences=rung.batch, model=case.model)
    return estimate(case, layout)


def published_row(case: Published) -> str:
    """A published case as a row."""
    ours, seconds = solved(case.problem)
    theirs = f"{case.slot:,.0f}" if case.slot is not None else "-"
    simulated = ours.best.simulated_time
    return (
        f"| {case.name} | {theirs} | {ours.slot_found:,.0f} ({_proof(ours)}) | {case.simulated:,.0f} | {simulated:,.0f} "
        f"| {signed(simulated / case.simulated - 1)} | {case.solver} | {seconds} |"
    )


def large_row(name: str, problem: BalanceProblem) -> str:
    """A large case as a row."""
    ours, seconds = solved(problem)
    above = ours.best.simulated_time / ours.simulated_bound - 1
    return (
        f"| {name} | {ours.slot_found:.5g} ({_proof(ours)}) | {ours.best.slot_time:.5g} | {ours.best.simulated_time:.6g} "
        f"| {percent(above)} | {percent(ours.bubble.total_ratio)} | {seconds} |"
    )


def _proof(answer: Balance) -> str:
    return "proved" if answer.status == "optimal" else f"gap {percent(answer.gap_ratio)}"


def ladder_row(rung: Rung) -> str:
    """A rung of the ladder as a row."""
    plain, fitted = (predicted(rung, name) for name in ("none", "shipped"))
    speed, calibrated = (each.tokens_per_s / rung.devices for each in (plain, fitted))
    return (
        f"| {rung.name} | {rung.tokens_per_s:,.0f} | {speed:,.0f} | {speed / rung.tokens_per_s:.2f} | {calibrated:,.0f} "
        f"| {calibrated / rung.tokens_per_s:.2f} | {plain.memory_peak_bytes / 1e9:.1f} |"
    )


HEAD = """# Stage balance on published cases

Written by `python -m benchmarks.balance --write`; seconds are those of the machine that wrote it.

## SAPP's cases

Layers, times and bounds of SAPP's own test, 16 stages unless the name says otherwise. *Slot*: the steady slot that its programme
minimises. *Simulated*: the pipeline of one step; its simulator and ours agree on its own answers (111,510 for its golden list).
Our answer is what simulates best. Memory is counted at every moment of the schedule; SAPP's table for interleaved 1F1B is one
moment of many (stage 0 at V3, m64: one of 17), for the other schedules the two are the same.

| case | slot, theirs | least slot, ours | simulated, theirs | simulated, ours | difference | theirs by | s (of a core) |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
LARGE_HEAD = """
## 126 layers on 16 stages

| case | least slot | slot of the answer | simulated | above the proved bound by | bubble | s (of a core) |
| --- | --- | --- | --- | --- | --- | --- |
"""
LADDER_HEAD = f"""
## A documented ladder

Llama2-13B on Atlas 800T A2, tokens/s/card, from MindSpore's performance guide; ours with the constants of the catalogue, and with
the shipped calibration. The last rung held {LADDER_BYTES / 1e9:.1f} GB. The guide leaves the batch of the first rung open: one
sequence a card is taken; with the four of the published configuration our first two rungs tie.

| rung | published | ours | ratio | calibrated | ratio | GB, ours |
| --- | --- | --- | --- | --- | --- | --- |
"""


def document() -> str:
    """The page."""
    tables = (
        (HEAD, map(published_row, PUBLISHED)),
        (LARGE_HEAD, (large_row(name, problem) for name, problem in LARGE)),
        (LADDER_HEAD, map(ladder_row, LADDER)),
    )
    return "".join(head + "\n".join(rows) + "\n" for head, rows in tables)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balance", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew docs/balance.md")
    options = parser.parse_args(arguments)
    text = document()
    sys.stdout.write(text)
    if options.write:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
