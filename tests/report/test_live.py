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
        {"event": "started", "label": "tp1 pp1 dp2 mb1", "attempt": 1, "predicted_s": 1.25},
        {"event": "runs", "label": "tp1 pp1 dp2 mb1", "attempt": 1, "nodes": ["n1", "n2"]},
        {"event": "step", "label": "tp1 pp1 dp2 mb1", "steps": 7, "step_s": 1.5},
        {"event": "ended", "label": "tp1 pp1 dp2 mb1", "status": "ok", "step_s": 1.5, "device_s": 7200.0},
        {"event": "best", "label": "tp1 pp1 dp2 mb1", "step_s": 1.5},
        {"event": "started", "label": "tp2 pp1 dp1 mb1", "attempt": 1},
        {"event": "ended", "label": "tp2 pp1 dp1 mb1", "status": "oom", "step_s": None, "device_s": 0.0},
        {"event": "started", "label": "tp1 pp2 dp1 mb1", "attempt": 1},
        {"event": "started", "label": "tp1 pp1 dp2 mb4", "attempt": 1},
        {"event": "withdrawn", "label": "tp1 pp1 dp2 mb4", "attempt": 1, "why": "x"},
        {"event": "started", "label": "tp1 pp1 dp2 mb8", "attempt": 1, "predicted_s": 0.5},
        {"event": "waits", "label": "tp1 pp1 dp2 mb8", "attempt": 1, "why": "Resources"},
        {"event": "stopped", "why": "x"}, {"event": "closed"},
    ):
        screen(event)
    console(stream, width=100).print(screen.view())
    text = stream.getvalue()
    assert "2 of 4 trials   2 device-hours   best dp2 mb1 1.50 s" in text and "minutes left" in text
    rows = [" ".join(line.split()) for line in text.splitlines()[1:]]
    assert rows == ["layout status where steps predicted step", "dp2 mb1 ok n1, n2 7 1.25 s 1.50 s", "tp2 mb1 oom",
                    "pp2 mb1 starting", "dp2 mb8 waits: Resources 500 ms"]


EVENTS = (
    {"event": "priced", "said": "at most 2 trials"},
    {"event": "started", "label": "tp1 pp1 dp2 mb1", "attempt": 1, "predicted_s": 1.25},
    {"event": "waits", "label": "tp1 pp1 dp2 mb1", "attempt": 1, "why": "Priority"},
    {"event": "waits", "label": "tp1 pp1 dp2 mb1", "attempt": 1, "why": "Resources"},
    {"event": "runs", "label": "tp1 pp1 dp2 mb1", "attempt": 1, "nodes": ["n1", "n2", "n3", "n4"]},
    {"event": "step", "label": "tp1 pp1 dp2 mb1", "steps": 7, "step_s": 1.5},
    {"event": "ended", "label": "tp1 pp1 dp2 mb1", "status": "ok", "step_s": 1.5, "device_s": 7200.0, "evidence": ""},
    {"event": "started", "label": "tp2 pp1 dp1 mb1", "attempt": 1},
    {"event": "ended", "label": "tp2 pp1 dp1 mb1", "status": "oom", "step_s": None, "device_s": 0.0,
     "evidence": "out of \x1b[31mmemory"},
    {"event": "node", "label": "tp2 pp1 dp1 mb1", "node": "n1", "evidence": "lost"},
    {"event": "closed"},
)


def test_where_nobody_watches_each_event_is_a_line():
    stream = io.StringIO()
    screen = Screen(console=console(stream, width=60), shown=False, lines=True)
    for event in EVENTS:
        screen(event)
    said = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert said == [
        "at most 2 trials", "dp2 mb1 waits: Priority", "dp2 mb1 runs on n1 and 3 others",
        "dp2 mb1: 1.50 s a step (1.25 s predicted)   [1 trial   2 device-hours   best dp2 mb1 1.50 s]",
        "tp2 mb1: oom: out of \\x1b[31mmemory   [2 trials   2 device-hours   best dp2 mb1 1.50 s]", "node n1: lost",
    ]


def test_the_price_is_said_where_nobody_was_asked():
    stream = io.StringIO()
    screen = Screen(console=console(stream, width=60), shown=False)
    for event in EVENTS:
        screen(event)
    assert stream.getvalue() == "at most 2 trials\n"
