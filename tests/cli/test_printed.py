"""What a command prints of an answer: which parts, in which order, where, and with which status; no answer is computed here."""

from __future__ import annotations

import os
from itertools import pairwise
from types import SimpleNamespace as Some

import pytest

from meshwright.cli import (
    _of_the_surroundings,
    app,
    balance,
    command,
    dryrun,
    estimate,
    fix,
    importing,
    output,
    overview,
    plan,
    rehearse,
)
from meshwright.errors import Message


@pytest.fixture
def named(monkeypatch):
    """Every function of reports says its name and what it was given."""

    def replaced(*paths: str) -> None:
        for path in paths:
            name = path.rpartition(".")[2]
            monkeypatch.setattr(f"meshwright.report.{path}", lambda *given, name=name: iter([(name, *given)]))

    return replaced


def test_the_report_of_a_plan_is_about_the_first_one(named):
    named(
        "compare.comparison_report",
        "cost.minimum_lines",
        "cost.run_cost_lines",
        "cost.saved_lines",
        "guided.guided_report",
        "packing.packing_lines",
        "plan.plan_report",
    )
    samples = Some(figures=lambda: "figures")
    result = Some(plans=[Some(estimate="first"), Some(estimate="second")])
    given = Some(case=Some(batch="batch"), samples=samples)
    answer = Some(
        given=given,
        result=result,
        closest="near",
        ok=True,
        tried="tried",
        comparison="other",
        guided="way",
        run="run",
        min_devices="few",
        saved="paths",
    )
    assert list(plan.report(answer, {})) == [
        ("plan_report", given.case, result, "near"),
        ("packing_lines", "figures", "batch", "first", "tried"),
        ("comparison_report", "other"),
        ("guided_report", "way", "first"),
        ("run_cost_lines", "run", "first"),
        ("minimum_lines", "few"),
        ("saved_lines", "paths"),
    ]
    nothing = Some(
        **{**vars(answer), "ok": False, "comparison": None, "guided": None, "run": None, "min_devices": None, "saved": None}
    )
    assert [part[0] for part in plan.report(nothing, {})] == ["plan_report", "packing_lines"]
    assert list(plan.report(nothing, {}))[1][3] is None
    given.samples = None
    assert [part[0] for part in plan.report(nothing, {})] == ["plan_report"]


def test_terms_are_printed_where_they_are_asked_for(named):
    named("estimate.estimate_report", "estimate.limit_lines", "estimate.note_lines", "estimate.term_table", "packing.packing_lines")
    answer = Some(
        given=Some(case="case", samples=None, framework=Some(name="fast")), estimate="its", closest=None, notes="n", limits="l"
    )
    parts = [("estimate_report", "case", "its", None), ("note_lines", "n"), ("limit_lines", "fast", "l")]
    assert list(estimate.report(answer, {"terms": False})) == parts
    assert list(estimate.report(answer, {"terms": True})) == [*parts, ("term_table", "its")]


def test_balance_prints_the_best_answer_or_the_first_that_does_not_fit(named):
    names = ("balance_report", "notes_report", "overfull_report", "ranking_report")
    named(*(f"balance.{name}" for name in names), "cost.saved_lines", "decomposition.decomposition_report")
    question = Some(decomposition=None, notes="notes", name="name", units="units")
    given = {"shown": None, "question": question}

    def printed(answers, overfull=(), saved=()):
        told = {**given, "solved": Some(answers=answers, overfull=overfull, refused="r"), "saved": saved}
        fields = balance.BalanceAnswer.__struct_fields__
        return list(balance.report(balance.BalanceAnswer(**{name: told.get(name) for name in fields}), {}))

    assert printed(["best", "other"]) == [
        ("notes_report", "notes"),
        ("balance_report", "best", "name"),
        ("ranking_report", ["best", "other"], "r"),
    ]
    assert printed([], [("problem", "verdict"), ("more", "chunks")], ["a"])[1:] == [
        ("overfull_report", "problem", "verdict", "name", "units"),
        ("ranking_report", [], "r"),
        ("saved_lines", ["a"]),
    ]
    question.decomposition = "memories"
    assert printed(["best"])[0] == ("decomposition_report", "memories")


def test_small_verbs_print_what_there_is(named, capsys):
    named("dryrun.dryrun_report", "dryrun.own_report", "reading.reading_report")
    own = Some(given=None, layout=None, builder="b", world=2, found="f")
    assert list(dryrun.report(own, {})) == [("own_report", "b", 2, "f")]
    assert list(dryrun.report(Some(**{**vars(own), "given": Some(case="c")}), {})) == [("own_report", "b", 2, "f")]
    assert list(dryrun.report(Some(**{**vars(own), "given": Some(case="c"), "layout": "l"}), {})) == [
        ("dryrun_report", "c", "l", "f")
    ]
    taken = Some(framework="f", reading="r", why_release="w", label="l")
    assert list(importing.report(Some(taken=taken, saved=None), {})) == [("reading_report", "f", "r", "w", "l")]
    assert len(list(importing.report(Some(taken=taken, saved="p"), {}))) == 2
    assert rehearse.WATCH({"json": True}, None) == {}
    assert list(rehearse.WATCH({"json": False}, None)) == ["each"]
    fix.AFTER(Some(applied=["a.sh", "b\x1b.sh"]), {"json": True})
    assert capsys.readouterr().out == ""
    fix.AFTER(Some(applied=["a.sh", "b\x1b.sh"]), {"json": False})
    assert capsys.readouterr().out.splitlines()[0] == "changed: a.sh"


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("refusal", [None, Message("made.up", "no", {})])
def test_an_answer_is_shown_once_and_then_what_comes_after_it(monkeypatch, capsys, json, watched, after, refusal):
    said = []
    monkeypatch.setattr(output, "print_json", lambda document: said.append(("json", document)))
    monkeypatch.setattr(output, "print_report", lambda parts: said.append(("report", parts)))
    answer = Some(to_json=lambda: "document", refusal=refusal, status=1 if refusal else 0, page="")

    def ask(request, progress=None, told=None):
        assert (request.name, told is not None) == ("x", watched)
        if told:
            told(answer)
            said.append("done")
        return answer

    verb = Some(REQUEST=type("Request", (Some,), {"FIELDS": (Some(name="name"),)}), ASK=ask, report=lambda answer, raw: "parts")
    if watched:
        verb.WATCH = lambda raw, show: {"told": show}
    if after:
        verb.AFTER = lambda answer, raw: said.append("after")
    assert command._asked(verb, {"name": "x", "json": json}) == (1 if refusal else 0)
    shown = ("json", "document") if json else ("report", "parts")
    assert said == [shown, *(["done"] if watched else []), *(["after"] if after else [])]
    assert capsys.readouterr().err == ("error: no\n" if refusal else "")
    verb.ASK = lambda request, **_: None
    assert command._asked(verb, {"name": "x", "json": json}) == 0


def test_a_line_of_progress_comes_after_a_moment_and_then_now_and_again(monkeypatch, capsys):
    now = [64.0]
    monkeypatch.setattr(output, "EVERY_S", 0.25)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    shown = []
    with output.stages() as tick:
        for at in (64.375, 64.5, 64.625, 64.75, 64.9375, 65.0):
            now[0] = at
            tick("layouts", 100 * (at - 64), 200 if at < 65 else 0)
            shown.append(capsys.readouterr().err)
    assert [bool(each) for each in shown] == [False, True, False, True, False, True]
    assert "50 of 200 layouts (25 %)" in shown[1]
    assert "100 of 0 layouts (0 %)" in shown[-1]
    assert capsys.readouterr().err == "\r\033[K"
    now[0] = 200.0
    with output.stages() as tick:
        tick("layouts", 1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("said", "columns"),
    [
        ("", 123),
        ("0", 123),
        ("1", 1),
        ("70", 70),
        ("99999", 99999),
        ("100000", 123),
        ("\u0663", 123),
        ("x1", 123),
        ("-5", 123),
        ("5.5", 123),
    ],
)
def test_columns_are_as_said_or_those_of_the_terminal(monkeypatch, said, columns):
    monkeypatch.setenv("COLUMNS", said)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((123, 40)))
    assert overview.columns_here() == columns
    if columns == 123:
        monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
        assert overview.columns_here() == 80
        monkeypatch.setattr(os, "get_terminal_size", lambda _: (_ for _ in ()).throw(OSError()))
        assert overview.columns_here() == 80


@pytest.mark.parametrize("columns", [1, 52, 53, 60, 79, 80, 81, 200])
def test_the_overview_uses_the_width_that_there_is(columns):
    lines = overview.overview(columns).splitlines()
    width = max(50, min(78, columns - 2))
    assert max(map(len, lines)) <= width
    starts = {
        line.index(verb[1])
        for line in lines
        if len(verb := line.split(maxsplit=1)) > 1 and line.startswith(f"  {verb[0]} ") and verb[0] in overview.VERBS
    }
    assert starts == {2 + max(map(len, overview.VERBS)) + 2}
    indent = 2 + max(map(len, overview.VERBS)) + 2
    for line, after in pairwise(lines):
        if after.startswith(" " * indent) and line.startswith("  "):  # a word goes to the next line where it has no room
            first = after.split()[0]
            assert len(line) + 1 + len(first.split("-")[0]) > width or line.endswith("-")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "No such file", "x.yaml"), "x.yaml: the system says: No such file"),
        (OSError(), "the system says: "),
        (OSError("words alone"), "the system says: words alone"),
        (RuntimeError("Symlink loop from '/a/b'"), "/a/b: a link leads back to itself"),
        (RuntimeError("other"), None),
        (ValueError("Symlink loop from '/a/b'"), None),
        (MemoryError(), "more memory is needed than there is"),
        (MemoryError("3 GiB"), "more memory is needed than there is: 3 GiB"),
        (RecursionError("deep"), "something in the input is nested too deeply"),
        (
            UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"),
            "a name or a text holds characters that cannot be written: "
            "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates",
        ),
        (KeyError("a"), None),
    ],
)
def test_who_is_to_blame(error, words):
    found = _of_the_surroundings(error)
    assert (found if found is None else str(found)) == words


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["plan", "--nodez", "3"], "unknown option '--nodez'; did you mean --nodes or --node-power?"),
        ([], None),
        (["plan", "--qqqq"], "`meshwright plan --help`"),
        (["--qqqq"], "`meshwright --help`"),
        (["-q"], "unknown option '-q'"),
        (["qqqq"], "unknown command 'qqqq'"),
    ],
)
def test_a_usage_error_names_the_help_that_lists_what_there_is(cli, arguments, line):
    answer = cli(*arguments)
    assert (answer.status == 2) == (line is not None)
    assert line is None or line.split("; did")[0] in answer.err, answer.err
    assert app.run(["--version"]) == 0
