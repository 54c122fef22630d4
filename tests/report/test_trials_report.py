"""The answers of ``sweep`` and ``tune``: one set of blocks for terminal and page, whole at any width, plain values all down."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.report import replay, trials
from meshwright.report.blocks import Table, View
from meshwright.report.console import show
from meshwright.report.page.html import html
from meshwright.report.page.plain import plain_view, view_of_plain
from meshwright.report.pages.trials import trials_page
from meshwright.report.pages.tune import replayed_page

LABELS = ("tp8 pp4 dp16 mb1 sp zero1", "tp1 pp1 dp512 mb4 zero3 recompute=selective:core_attn schedule=interleaved vp4")


def trial(label: str, **more: Any) -> dict[str, Any]:
    said = {
        "label": label, "status": "ok", "predicted_step_s": 12.3456, "step_s": 13.21, "interval": [13.1, 13.3],
        "error_ratio": -0.0655, "tokens_per_s_per_device": 12_345.6, "attempt": 1, "rank": None, "evidence": "",
    }
    return {**said, **more}


def view_of(found: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    said = {
        "model": "llama3-8b", "devices": 512, "cluster": "h100-sxm", "program": "Megatron-LM", "global_batch_sequences": 1024,
        "sequence_tokens": 8192, "trials": found, "truncated_layers": None, "nodes_set_aside": [],
        "stopped": "every trial has been run", "device_hours": 12.345, "finals": None,
        "best": {**found[0], "files": ["here/run.sh"]} if found else None, "planned": [],
        "price": {"trials": 2, "device_hours": 13.0, "minutes": 5.0}, "executor": "slurm",
    }
    return {**said, **more}


SEVERAL = [trial(LABELS[0]), trial(LABELS[1], predicted_step_s=0.0123),
           trial("tp2", status="oom", step_s=None, interval=None, error_ratio=None, rank=3, evidence="out of memory " * 30)]
WHOLE = view_of(
    SEVERAL, truncated_layers=4, nodes_set_aside=[{"node": "n7", "why": "its link is down"}],
    finals={"verdict": "the first is faster"}, out="rows.csv",
    left_out={LABELS[0]: "no step"}, verdict="2 trials of 9 layouts: enough is known.",
)
REPLAYED = {
    "cell": "nanotron/8B/h100", "cells": ["nanotron/8B/h100", "b", "c", "d", "e"], "layouts": 22, "measured": 20,
    "sampler": "model", "calibration": "shipped", "known_configurations": 3,
    "seeds": [{"trials_to_2_percent": 1}, {"trials_to_2_percent": None}],
    "verdict": "1 trial found it.", "trials": 3, "best_label": LABELS[0], "best_step_s": 0.271,
    "best_tokens_per_s_per_device": 30_186.0, "regret_by_trial": [0.031, 0.0, 0.0], "runs": [
        {"label": LABELS[0], "status": "ok", "predicted_s": 0.282, "step_s": 0.279, "tokens_per_s_per_device": 29_000.0},
        {"label": LABELS[1], "status": "ok", "predicted_s": 0.3, "step_s": 0.271, "tokens_per_s_per_device": 30_186.0},
        {"label": "tp2", "status": "oom", "predicted_s": 0.31, "step_s": None, "tokens_per_s_per_device": None},
    ],
}
PAGES = {
    "trials": trials_page("tune", WHOLE, True), "none": trials_page("sweep", view_of([]), False),
    "dry": trials_page("sweep", view_of([], dry_run=[{"label": LABELS[0], "runs": "one\ntwo"}]), True),
    "replayed": replayed_page(REPLAYED, True),
}


def printed(parts: Any, width: int) -> str:
    stream = io.StringIO()
    show(parts, stream, width)
    return stream.getvalue()


def runs_of(value: Any) -> list[dict[str, Any]]:
    """Every run of text of a plain view."""
    if isinstance(value, dict):
        own = [value] if value.get("is") == "run" else []
        return own + [run for each in value.values() for run in runs_of(each)]
    return [run for each in value for run in runs_of(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", PAGES)
def test_the_view_of_an_answer_is_json_and_back(name: str) -> None:
    page = PAGES[name]
    plain = json.loads(json.dumps(plain_view(page)))
    back = view_of_plain(plain)
    assert isinstance(back, View) and back == page and html(back) == html(page)
    assert printed(back.told, 80) == printed(page.told, 80)


@pytest.mark.parametrize("name", PAGES)
def test_a_figure_is_spelled_one_way_on_both(name: str) -> None:
    """What the terminal says of a value the page says, too, in the same words."""
    plain = plain_view(PAGES[name])
    figures = [(each["value"], each["unit"], each["text"]) for each in runs_of(plain) if "value" in each]
    spelled = {(value, unit): text for value, unit, text in figures}
    assert all(spelled[value, unit] == text for value, unit, text in figures)
    told = {(each["value"], each["text"]) for each in runs_of(plain["told"]) if "value" in each} if plain.get("told") else set()
    shown = {(each["value"], each["text"]) for each in runs_of(plain["sections"]) if "value" in each}
    assert told <= shown


@pytest.mark.parametrize("width", [80, 110])
@pytest.mark.parametrize("name", ["trials", "replayed"])
def test_no_value_is_cut_off(name: str, width: int) -> None:
    told = PAGES[name].told
    text = printed(told, width)
    assert max(map(len, text.splitlines())) <= width and "\u2026" not in text
    (table,) = (each for each in told if isinstance(each, Table))
    for row in table.rows:
        for place, each in enumerate(row):
            said = "".join(run.text for run in each.words)
            assert all(word in text for word in said.split()) if place == 0 else said in text or table.head[place] == "layout"


@examples(30)
@given(label=st.text(st.characters(codec="utf-8"), max_size=60), evidence=st.text(max_size=300), width=st.integers(60, 120))
def test_any_words_stay_text(label: str, evidence: str, width: int) -> None:
    found = view_of([trial("tp2"), trial(label, status="user", step_s=None, interval=None, error_ratio=None, evidence=evidence)])
    assert "\x1b" not in printed(trials.told_of(found), width)
    page = html(trials_page("sweep", found, True))
    assert "<script>" not in page.replace("<script>(function", "", 1)


def test_a_replay_says_what_its_terminal_says() -> None:
    assert PAGES["replayed"].told == replay.told_of(REPLAYED)
    text = printed(replay.told_of(REPLAYED), 110)
    assert "279 ms" in text and "3.1 %" in text and "never" in text and "4 further cells" in text
