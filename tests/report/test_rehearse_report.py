"""The closed loop's table, sentence and picture from one view."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from meshwright.api.views.rehearse import verdict
from meshwright.domain.label import parse_layout
from meshwright.report.console import show
from meshwright.report.rehearse import rehearsal_report, terse
from meshwright.report.rehearse_picture import picture

NOISE = {"spread_ratio": 0.04, "regret_low_ratio": 0.0, "regret_high_ratio": 0.06, "choice_regret_ratio": 0.01}
SCORES = {
    "layouts": 12, "median_error_ratio": 0.12, "worst_error_ratio": -0.31, "bias_ratio": -0.1, "order": 0.93, "regret_ratio": 0.02,
    "noise": NOISE,
}


def entry(place: int, **more: Any) -> dict[str, Any]:
    return {
        "label": f"tp1 pp1 dp2 mb{place} zero0", "planned": place if place < 4 else None, "predicted_s": 0.1 * place,
        "predicted_before_profiling_s": 0.05 * place, "measured_s": 0.12 * place,
        "runs_s": [0.11 * place, 0.12 * place, 0.15 * place],
        "error_ratio": -1 / 6, "rank_predicted": place, "rank_measured": place, "cause": "", "memory_peak_bytes": 2**30,
        "memory_peak_measured_bytes": None, **more,
    }


def view(scores: dict[str, Any] | None = SCORES, **more: Any) -> dict[str, Any]:
    plain = {
        "model": "decoder", "global_batch_sequences": 8, "sequence_tokens": 128, "precision": "bf16", "cluster": "this-machine",
        "profiled": True, "ranks": 2, "cores": 2, "oversubscribed": False, "complete": True, "scores": scores,
        "scores_before_profiling": scores, "entries": [entry(place) for place in (1, 2, 4)], **more,
    }
    return {**plain, "verdict": verdict(plain)}


def shown(document: dict[str, Any]) -> str:
    stream = io.StringIO()
    show(rehearsal_report(document), stream, width=140)
    return stream.getvalue()


CHOICE = "the choice (its layout is 2.0 % slower than the fastest of 12, repetitions differ by 4.0 %)"
ORDER, TIMES = "the order (rank correlation 0.93)", "the seconds (off by 12 % in the middle, -31 % at worst)"


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (SCORES, f"Believe {CHOICE}, {ORDER} and {TIMES}."),
        (SCORES | {"median_error_ratio": 0.4}, f"Believe {CHOICE} and {ORDER}, but not {TIMES.replace('12 %', '40 %')}."),
        (
            SCORES | {"regret_ratio": 0.3, "order": 0.1, "median_error_ratio": 0.4},
            f"Do not believe {CHOICE.replace('2.0 %', '30.0 %')}, {ORDER.replace('0.93', '0.10')} or "
            f"{TIMES.replace('12 %', '40 %')}.",
        ),
        (SCORES | {"regret_ratio": 0.06, "noise": NOISE | {"choice_regret_ratio": 0.07}},
         f"Believe {CHOICE.replace('2.0 %', '6.0 %')}, {ORDER} and {TIMES}."),
        (SCORES | {"regret_ratio": 0.12, "noise": NOISE | {"spread_ratio": 0.2, "choice_regret_ratio": 0.04}},
         f"Believe {ORDER} and {TIMES}, but not {CHOICE.replace('2.0 %', '12.0 %').replace('4.0 %', '20.0 %')}."),
        (SCORES | {"noise": NOISE | {"spread_ratio": 0.3}},
         "Repetitions of one layout differ by 30 %: the machine is too busy to judge by."),
        (SCORES | {"layouts": 1, "noise": None}, "One layout says nothing of a choice; run more."),
        (SCORES | {"layouts": 2, "order": None, "noise": None},
         f"Believe the choice (its layout is 2.0 % slower than the fastest of 2) and {TIMES}."),
        (None, "Nothing ran, so nothing is known."),
    ],
)
def test_the_sentence(scores: dict[str, Any] | None, said: str) -> None:
    assert verdict(view(scores)) == said


def test_a_choice_that_did_not_run_is_not_believed() -> None:
    entries = [entry(1, measured_s=None, runs_s=[], cause="rank 0: killed"), entry(2), entry(4)]
    assert verdict(view(entries=entries)) == f"Believe {ORDER} and {TIMES}, but not the choice (its layout did not run)."


def test_more_ranks_than_cores_are_not_judged() -> None:
    document = view(oversubscribed=True, ranks=4)
    assert document["verdict"] == "4 ranks on 2 cores wait for each other: shown, not judged."
    assert "oversubscribed (2 cores): reported only" in shown(document)


def test_the_table() -> None:
    text = shown(view(entries=[entry(1), entry(2), entry(3, measured_s=None, runs_s=[], cause="rank 1: killed")], complete=False))
    assert "interrupted" in text and "dp2 mb3: did not run: rank 1: killed" in text
    row = next(line for line in text.splitlines() if "dp2 mb2" in line)
    assert " ".join(row.split()) == "dp2 mb2 2 100 ms 200 ms 240 ms 33 % -17 % 2 2"
    assert "GiB" not in text
    assert "before profiling" in text and "before profiling" not in shown(view(profiled=False))
    unknown = shown(view(scores_before_profiling=None, entries=[entry(1, predicted_before_profiling_s=None)]))
    assert "after profiling" in unknown and "before" not in unknown, "a device that the catalogue does not know"
    with_memory = shown(view(entries=[entry(1, memory_peak_measured_bytes=2**31)]))
    assert "1.0 GiB" in with_memory and "2.0 GiB" in with_memory


def test_a_terse_label_is_the_same_layout() -> None:
    for text in ("tp1 pp2 dp1 mb1 zero0 schedule=zb1p", "tp2 pp1 dp1 mb2 sp zero0", "tp1 pp1 dp2 mb1 zero0"):
        one, other = (parse_layout(each, num_devices=2, global_batch_sequences=8) for each in (text, terse(text)))
        assert one == other
    assert terse("tp1 pp1 dp2 mb1 zero0") == "dp2 mb1"


def test_the_picture_has_a_dot_for_every_layout_that_ran() -> None:
    document = view(entries=[entry(1), entry(2), entry(3, measured_s=None, runs_s=[])])
    root = ET.fromstring(picture(document))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 2
    assert picture(document) == picture(document)
    empty = ET.fromstring(picture(view(None, entries=[])))
    assert "nothing was measured" in "".join(empty.itertext())


@pytest.mark.parametrize("seconds", [1e-6, 0.003, 1.0, 9.99, 1234.0])
def test_the_picture_shows_any_magnitude_with_ticks(seconds: float) -> None:
    document = view(entries=[entry(1, measured_s=seconds, runs_s=[seconds], predicted_s=1.1 * seconds)])
    words = "".join(ET.fromstring(picture(document)).itertext())
    assert any(unit in words for unit in (" us", " ms", " s"))
