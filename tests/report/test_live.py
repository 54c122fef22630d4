"""The screen of trials that run."""

import io

from meshwright.report.console import console
from meshwright.report.live import Screen


def test_what_a_store_had_says_nothing_of_how_long_the_rest_takes():
    screen = Screen(console=console(io.StringIO(), width=100), shown=False)
    screen({"event": "planned", "trials": 3})
    screen({"event": "known", "label": "tp1 pp1 dp2 mb1", "status": "ok", "step_s": 1.5})
    said = io.StringIO()
    console(said, width=100).print(screen.view())
    assert "1 of 3 trials" in said.getvalue() and "minutes left" not in said.getvalue()
    screen({"event": "ended", "label": "tp1 pp1 dp2 mb2", "status": "ok", "step_s": 1.5, "device_s": 1.0})
    screen._began -= 600.0
    console(said, width=100).print(screen.view())
    assert "2 of 3 trials" in said.getvalue() and "about 10 minutes left" in said.getvalue()


def test_the_screen_says_what_runs_what_it_cost_and_the_best():
    stream = io.StringIO()
    screen = Screen(console=console(stream, width=100), shown=False)
    for event in (
        {"event": "planned", "trials": 4},
        {"event": "started", "label": "tp1 pp1 dp2 mb1", "attempt": 1},
        {"event": "step", "label": "tp1 pp1 dp2 mb1", "steps": 7, "step_s": 1.5},
        {"event": "ended", "label": "tp1 pp1 dp2 mb1", "status": "ok", "step_s": 1.5, "device_s": 7200.0},
        {"event": "best", "label": "tp1 pp1 dp2 mb1", "step_s": 1.5},
        {"event": "started", "label": "tp2 pp1 dp1 mb1", "attempt": 1},
        {"event": "ended", "label": "tp2 pp1 dp1 mb1", "status": "oom", "step_s": None, "device_s": 0.0},
        {"event": "started", "label": "tp1 pp2 dp1 mb1", "attempt": 1},
        {"event": "started", "label": "tp1 pp1 dp2 mb4", "attempt": 1},
        {"event": "withdrawn", "label": "tp1 pp1 dp2 mb4", "attempt": 1, "why": "x"},
        {"event": "stopped", "why": "x"}, {"event": "closed"},
    ):
        screen(event)
    console(stream, width=100).print(screen.view())
    text = stream.getvalue()
    assert "2 of 4 trials   2 device-hours   best dp2 mb1 1.50 s" in text and "minutes left" in text
    rows = [" ".join(line.split()) for line in text.splitlines()[1:]]
    assert rows == ["layout status steps step", "dp2 mb1 ok 7 1.50 s", "tp2 mb1 oom", "pp2 mb1 starting"]
