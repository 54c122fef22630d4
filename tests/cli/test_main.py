"""Exit status, one line per fault, never a traceback; and a help that is there at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.main import get_command

from meshwright import cli as package
from meshwright.cli import app
from meshwright.cli.elsewhere import KNOBS, OPTIONS
from meshwright.cli.overview import VERBS
from meshwright.errors import Message, NoAnswerError

HEAVY = (
    "numpy",
    "rich",
    "yaml",
    "cattrs",
    "jinja2",
    "ruamel",
    "meshwright.catalog",
    "meshwright.search",
    "meshwright.cli.plan",
)


def shell(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "meshwright.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]


def test_help_imports_nothing_heavy():
    code = "import sys; from meshwright.cli import main; main(['--help']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "meshwright.cli.overview" in loaded
    assert not [name for name in HEAVY if name in loaded]


def test_help_names_every_verb(cli):
    answer = cli("--help")
    assert answer.status == 0
    assert all(verb in answer.out for verb in app.VERBS)
    assert cli().out == answer.out


@pytest.mark.parametrize("verb", app.VERBS)
def test_every_verb_has_help(cli, verb):
    answer = cli(verb, "--help")
    assert answer.status == 0
    assert "--json" in answer.out
    assert "Example: meshwright" in answer.out
    assert not answer.err


def test_defaults_are_not_swallowed_by_markup(cli):
    assert "[default: bf16]" in " ".join(cli("plan", "--help").out.split())


def test_version(cli):
    answer = cli("--version")
    assert answer.status == 0
    assert answer.out.startswith("meshwright ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["plna"], "error: unknown command 'plna'; did you mean plan?"),
        (["plan", "--nodez", "3"], "error: unknown option '--nodez'; did you mean --nodes"),
        (["plan", "--gpu", "h100"], "error: unknown option '--gpu'; it is '--device' here"),
        (["estimate", "--seq_length", "4096"], "error: unknown option '--seq_length'; it is '--sequence' here"),
        (["plan", "--tensor-parallel", "4"], "error: unknown option '--tensor-parallel'; it is '--pin tp=N' here"),
        (["plan", "--model", "llama3-8b"], "error: unknown option '--model'; the model is named without an option"),
        (["plan", "--nodes"], "error: Option '--nodes' requires an argument."),
        (["--nonsense"], "error: unknown option '--nonsense'"),
        (["catalog", "a", "b", "c"], "error: too many arguments: 'c'; a value with spaces needs quotes"),
        (["estimate", "llama3-8b", "tp4 pp2"], "error: too many arguments: 'tp4 pp2'; a layout is given as --layout 'tp4 pp2'"),
        (["plan", "llama3-8b", "tp4", "pp2"], "error: too many arguments: 'tp4 pp2'; a layout is given as --compare 'tp4 pp2'"),
    ],
)
def test_usage_errors_are_one_line(cli, arguments, line):
    answer = cli(*arguments)
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert answer.lines[0].startswith(line)
    assert not answer.out


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (NoAnswerError(Message("no", "no {what}", {"what": "answer"})), 1, "error: no answer"),
        (ZeroDivisionError("a\nb"), 70, "error: internal error: ZeroDivisionError: a\\nb; please report it"),
        (RuntimeError(), 70, "error: internal error: RuntimeError: no reason given"),
    ],
)
def test_every_failure_is_a_line_and_a_status(cli, monkeypatch, error, status, line):
    def fail(_: object) -> int:
        raise error

    monkeypatch.delenv("MESHWRIGHT_DEBUG", raising=False)
    monkeypatch.setattr(app, "run", fail)
    answer = cli("plan")
    assert answer.status == status
    assert len(answer.lines) == 1
    assert answer.lines[0].startswith(line)


def test_debug_shows_where(monkeypatch):
    def fail(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setenv("MESHWRIGHT_DEBUG", "1")
    monkeypatch.setattr(app, "run", fail)
    with pytest.raises(ZeroDivisionError):
        package.main(["plan"])


def test_words_of_one_option_in_two_are_refused(capsys):
    assert package.main(["plan", "llama3-8b", "--launch", "routing=natural", "--launch", "graphs=none"]) == 2
    assert capsys.readouterr().err == "error: --launch is given 2 times; all its words stand in one, as in --launch 'A=1 B=2'\n"


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "meshwright.cli", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert process.returncode == 141
    assert process.stderr == ""


@pytest.mark.parametrize("columns", [20, 60, 80, 200])
def test_the_overview_is_what_typer_would_print(columns, monkeypatch, capsys):
    from meshwright.cli.overview import overview

    monkeypatch.setenv("COLUMNS", str(columns))
    assert app.run(["--help"]) == 0
    assert overview(columns) == capsys.readouterr().out


def test_names_from_elsewhere_lead_to_options_that_a_verb_has():
    group = get_command(app.app)
    every = {name for verb in VERBS for each in group.get_command(None, verb).params for name in each.opts}
    assert set(OPTIONS) <= every
    words = [word for others in (*OPTIONS.values(), *KNOBS.values()) for word in others]
    assert len(words) == len(set(words))


def test_a_reader_that_goes_away_is_no_interruption():
    command = [sys.executable, "-m", "meshwright", "plan", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        run.stdout.close()
        said = run.stderr.read()
    assert (run.returncode, said) == (141, "")


@pytest.mark.parametrize(("words", "said"), [
    (["export", "p", "--to", "megatron", "--to", "bridge", "--out", "o"], "--to is given 2 times, and has one value"),
    (["plan", "llama3-8b", "--nodes", "1", "--nodes", "2"], "--nodes is given 2 times, and has one value"),
])
def test_an_option_of_one_value_is_given_once(words, said, capsys):
    assert package.main(words) == 2
    assert capsys.readouterr().err == f"error: {said}\n"
