"""Published runs, predicted without any calibration: ``python -m benchmarks.sanity [--corpus DIR] [--write]``.

Nothing here is fitted to the rows: constants are the priors of the catalogue (``none@0``).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.predict import Prediction, Predictions, predict
from benchmarks.scores import fit, memory_errors, step_errors
from meshwright.evidence.rows import ASSUMPTIONS, read

if TYPE_CHECKING:
    from meshwright.evidence.rows import Row

ROOT = Path(__file__).resolve().parents[1]
TARGET_MFU = 0.20
WORST = 10
NVIDIA = ("nemo", "megatron-bridge", "megatron-lm")
NEAR_CAPACITY_BYTES = 68 * 2**30


HEAD = (
    "set", "n", f"n > {TARGET_MFU:.0%} MFU", "of these within 1.25", "MAPE", "all: MAPE", "median", "bias", "Spearman",
    "memory n", "MAPE", "bias", "fit accuracy (ran, failed)",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """A set of rows that is scored together."""

    name: str
    holds: Callable[[Row], bool]
    worst: bool = True


def _nvidia(row: Row) -> bool:
    return row["id"].startswith("nv") and row["framework"] in NVIDIA and not row["framework_version"].startswith(("2021", "2022"))


def _dense(row: Row, device: str) -> bool:
    return _nvidia(row) and not row["n_experts"] and row["gpu"].startswith(device)


SETS = (
    Set(name="Narayanan 2021", holds=lambda r: r["id"].startswith("nv") and r["framework_version"].startswith("2021-04")),
    Set(name="Korthikanti 2022", holds=lambda r: r["id"].startswith("nv") and r["framework_version"].startswith("2022-05")),
    Set(
        name="playbook",
        holds=lambda r: r["id"].startswith("playbook-") or (r["id"].startswith("fail-") and r["framework"] == "nanotron"),
    ),
    Set(name="vtrain-m", holds=lambda r: r["id"].startswith("vtrain-m")),
    Set(name="BLOOM", holds=lambda r: r["id"].startswith("bloom")),
    Set(name="NVIDIA dense H100", holds=lambda r: _dense(r, "h100")),
    Set(name="NVIDIA dense B200, GB200, GB300", holds=lambda r: _dense(r, "b200") or _dense(r, "gb")),
    Set(name="MPT on A100 (FSDP)", holds=lambda r: r["id"].startswith("mpt-")),
    Set(name="InternEvo", holds=lambda r: r["id"].startswith("internevo-")),
    Set(name="torchtitan", holds=lambda r: r["id"].startswith("titan-")),
    Set(name="SimuMax B200", holds=lambda r: r["id"].startswith("simumax-")),
    Set(name="Ascend", holds=lambda r: r["gpu"].startswith("ascend")),
    Set(name="NVIDIA MoE", holds=lambda r: _nvidia(r) and bool(r["n_experts"])),
)  # fmt: skip


def reason(each: Prediction) -> str:
    """What the row shows that the model does not know, as far as its own figures tell."""
    layout, row, case = each.run.layout, each.run.row, each.run.case
    tp, pp, low = layout.tensor_parallel, layout.pipeline_parallel, each.ratio < 1.0
    domain, nodes = case.cluster.scale_up_devices, layout.world > case.cluster.devices_per_node
    if row["framework"] == "nanotron" and low:
        if pp > 1 and (each.run.memory_bytes or 0.0) > NEAR_CAPACITY_BYTES:
            return "near capacity: the allocator retries"
        if pp > 1 and layout.zero_stage == 0 and layout.data_parallel > 1:
            return "nanotron: ZeRO-0 under PP, a constant per micro-batch"
        if pp > 1 and tp > 1 and nodes:
            return "nanotron: TP beside PP across nodes, a floor per layer"
        if tp > domain:
            return "TP across nodes: latency of each step"
        if layout.world >= 256:
            return "32 and 64 nodes: noisy network"
        if tp > 1:
            return "nanotron: host time of TP collectives"
        return "unexplained: a neighbour with the same degrees runs normally"
    if case.model.is_moe:
        if layout.expert_parallel * layout.expert_tensor_parallel > domain and each.time.expert_parallel_s > 0.25 * each.step_s:
            return "experts across nodes: dispatcher and overlap of the row are not known"
        if low and each.measured_mfu < 0.15:
            return "host-bound mixture of experts: kernels per expert"
        return "mixture of experts: releases of one recipe differ by 30-60 %"
    if each.time.bubble_s > 0.1 * each.step_s and layout.virtual_stages == 1:
        return "the row may leave out its virtual stages"
    if row["precision"].startswith(("fp8", "nvfp4")):
        return "low-precision kernels of this release"
    return ""


def heading(cells: tuple[str, ...]) -> list[str]:
    """Head of a Markdown table."""
    return ["| " + " | ".join(cells) + " |", "|" + "|".join(" --- " for _ in cells) + "|"]


def score_rows(found: dict[str, Predictions]) -> list[str]:
    """The table of scores, as Markdown."""
    lines = heading(HEAD)
    for name, predictions in found.items():
        rows = predictions.rows
        every, high = step_errors(rows), step_errors([each for each in rows if each.measured_mfu > TARGET_MFU])
        memory, fits = memory_errors(rows), fit(predictions)
        cells = [name]
        cells += [str(every.n)] if every else ["0"]
        cells += [str(high.n), f"{high.within:.0%}", f"{high.mape:.1%}"] if high else ["0", "", ""]
        cells += [f"{every.mape:.1%}", f"{every.median:.1%}", f"{every.bias:+.1%}", f"{every.spearman:.2f}"] if every else [""] * 4
        cells += [str(memory.n), f"{memory.mape:.1%}", f"{memory.bias:+.1%}"] if memory else ["", "", ""]
        cells += [f"{fits.accuracy:.1%} ({fits.ran:.1%}, {fits.failed:.1%}) of {fits.n}"] if fits else [""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def worst_rows(predictions: Predictions) -> list[str]:
    """The rows farthest off, as Markdown."""
    timed = [each for each in predictions.rows if each.run.step_s and not each.run.failed]
    timed.sort(key=lambda each: (-abs(math.log(each.ratio)), each.run.id))
    lines = heading(("row", "layout", "measured s", "predicted / measured", "MFU", "what can be seen"))
    for each in timed[:WORST]:
        layout, row = each.run.layout, each.run.row
        words = (
            f"{row['model']} {layout.world} x {row['gpu']} {row['precision']} tp{layout.tensor_parallel} "
            f"cp{layout.context_parallel} pp{layout.pipeline_parallel} vp{layout.virtual_stages} ep{layout.expert_parallel} "
            f"mb{layout.microbatch_sequences} m{layout.num_microbatches} zero{layout.zero_stage}"
        )
        cells = (each.run.id, words, f"{each.run.step_s:.3f}", f"{each.ratio:.2f}", f"{each.measured_mfu:.3f}", reason(each))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def document(found: dict[str, Predictions]) -> str:
    """The whole of ``docs/sanity.md``."""
    lines = [
        "# Published runs, predicted before any calibration", "",
        "Written by `python -m benchmarks.sanity --write`, with the priors `none@0`; nothing is fitted to these rows.",
        "Errors are of the step time; memory is of the kind that the row reports. MFU is the published one, else causal",
        "model FLOPs over the measured step. Rows with a flag are left out. The target is a factor of 1.25 for rows above",
        "20 % MFU.", "",
        "<!-- summary -->", *score_rows(found), "<!-- /summary -->", "", "## What is assumed where a row is silent", "",
        *(f"- {text}" for text in ASSUMPTIONS), "", "## Rows left out", "",
        *(
            f"- {name}: " + ", ".join(f"{count} {why}" for why, count in sorted(predictions.skipped.items()))
            for name, predictions in found.items() if predictions.skipped
        ),
        "", f"## The {WORST} worst rows of each set", "",
    ]  # fmt: skip
    for name, predictions in found.items():
        lines += [f"### {name}", "", *worst_rows(predictions), ""]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0, or 2 where the corpus is not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanity", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="directory of measured_runs.csv")
    parser.add_argument("--write", action="store_true", help="write docs/sanity.md too")
    options = parser.parse_args(arguments)
    if not (options.corpus / "measured_runs.csv").is_file():
        sys.stderr.write(f"no measured_runs.csv in {options.corpus}\n")
        return 2
    rows = read(options.corpus)
    found = {each.name: predict(row for row in rows if each.holds(row)) for each in SETS}
    text = document(found)
    sys.stdout.write(text)
    if options.write:
        (ROOT / "docs" / "sanity.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
