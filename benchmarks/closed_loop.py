"""Measures the closed loop on this machine: ``python -m benchmarks.closed_loop [--write] [--out DIR] [--quick]``.

``meshwright rehearse`` for 2 ranks as a user runs it, and shorter for 4. With ``--out`` it goes on where it was stopped.
``--write`` writes docs/closed-loop.md and its picture.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.measure.rehearse.scores import spread
from meshwright.report.rehearse import score_rows, terse
from meshwright.report.rehearse_picture import picture
from meshwright.version import __version__
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    View = Mapping[str, Any]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "closed-loop.md"
FULL = {2: ("--step-seconds", "0.7"), 4: ("--quick", "--layouts", "12")}
"""Ranks -> what is asked of ``meshwright rehearse``; more ranks than cores are only reported, so they get less time."""


def rehearse(ranks: int, out: str, *, quick: bool) -> dict[str, Any]:
    """The document of one rehearsal, with its command; it fails as the command fails."""
    more = ("--quick", "--layouts", "4", "--step-seconds", "0.05") if quick else FULL[ranks]
    command = [sys.executable, "-m", "meshwright", "rehearse", "--ranks", str(ranks), "--out", out, "--json", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    said = " ".join(("meshwright rehearse --ranks", str(ranks), *more))
    return {**json.loads(done.stdout), "command": said}


def page(documents: Sequence[View]) -> str:
    """docs/closed-loop.md."""
    machine = documents[0]["machine"]
    lines = [
        "# Predicted beside measured on a small machine", "",
        f"`meshwright rehearse` on {machine}, {datetime.now(tz=UTC).date()}, meshwright {__version__}. Written by "
        "`python -m benchmarks.closed_loop --write`, as measured.", "",
        "The command measures the machine by micro-benchmarks (no layer and no step among them), sizes a small decoder, plans it, "
        "runs the plan's first layouts and others that show what these do not, each in fresh ranks and in rounds (A B C A B C), "
        "and sets the medians beside what was predicted. \"Before\" is the prediction without the profile.", "",
    ]
    for document in documents:
        for view in document["rehearsals"]:
            lines += _section(view, document["command"])
    return "\n".join(lines)


def _section(view: View, command: str) -> Iterator[str]:
    cores = f", on {view['cores']} cores: reported only" if view["oversubscribed"] else ""
    yield f"## {view['ranks']} ranks{cores}"
    yield ""
    yield (
        f"`{command}`: {view['model']}, {view['global_batch_sequences']} x {view['sequence_tokens']} tokens, {view['precision']}, "
        f"{view['rounds']} rounds. **{view['verdict']}**"
    )
    yield ""
    if not view["oversubscribed"]:
        yield f"![predicted against measured](closed-loop-{view['ranks']}.svg)"
        yield ""
    yield "| layout | plan | before | predicted | measured | spread | error | rank predicted | rank measured |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for entry in view["entries"]:
        yield f"| {' | '.join(_cells(entry))} |"
    yield ""
    if view["scores"] is not None:
        yield "| | after profiling | before profiling |"
        yield "|---|---|---|"
        for after, before in zip(score_rows(view["scores"]), score_rows(view["scores_before_profiling"]), strict=True):
            yield f"| {after[0]} | {after[1]} | {before[1]} |"
        yield ""


def _cells(entry: View) -> tuple[str, ...]:
    name = f"`{terse(entry['label'])}`"
    before, predicted = seconds(entry["predicted_before_profiling_s"]), seconds(entry["predicted_s"])
    if entry["measured_s"] is None:
        return name, "", before, predicted, entry["cause"] or "not reached", "", "", "", ""
    runs = entry["runs_s"]
    return (
        name, str(entry["planned"] or ""), before, predicted, seconds(entry["measured_s"]),
        percent(spread(runs), 0) if len(runs) > 1 else "", f"{100 * entry['error_ratio']:+.0f} %",
        str(entry["rank_predicted"]), str(entry["rank_measured"]),
    )


def main() -> int:
    """Run, print the verdicts, and write the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a tiny loop, to see that everything runs")
    parser.add_argument("--ranks", type=int, nargs="+", default=sorted(FULL), choices=sorted(FULL))
    parser.add_argument("--out", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="meshwright-closed-loop-") as folder:
        documents = [rehearse(ranks, asked.out or folder, quick=asked.quick) for ranks in asked.ranks]
    text = page(documents)
    print(text)
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
        for view in (view for document in documents for view in document["rehearsals"] if not view["oversubscribed"]):
            (PAGE.parent / f"closed-loop-{view['ranks']}.svg").write_text(picture(view), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
