"""Pages show what the program says: their output, their picture, their commands and their examples."""

import contextlib
import importlib.util
import io
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.readme import ATLAS, PAGES, PICTURE, ROOT, WIDTH, atlas_picture, output, picture, refreshed
from tests import searches

from meshwright.cli.app import MODULES, VERBS

README = ROOT / "README.md"
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")
    searches.remember(monkeypatch)  # pictures are of what examples print


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_the_program_says(page):
    text = page.read_text(encoding="utf-8")
    assert refreshed(text) == text, "run scripts/refresh-readme"


def test_the_picture_is_of_the_plan_beside_it():
    assert PICTURE.read_text(encoding="utf-8") == picture(README.read_text(encoding="utf-8")), "run scripts/refresh-readme"


def test_the_picture_of_the_atlas_is_of_the_example_beside_it():
    text = ATLAS.read_text(encoding="utf-8")
    assert ATLAS.with_suffix(".svg").read_text(encoding="utf-8") == atlas_picture(text), "run scripts/refresh-readme"


def test_the_readme_is_short_and_nothing_of_it_is_cut_off():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 250
    first = text.split("\n## ")[0].splitlines()
    assert sum(line.startswith("![") for line in first) == 1
    table = [line for line in first if line.startswith("|")]
    assert len(table) == 7
    fenced = [line for block in FENCED.findall(text) for line in block.splitlines() if "import" not in line and "mw." not in line]
    assert not [line for line in fenced if len(line) > int(WIDTH)]
    assert not [line for line in table if len(line) > 110]


def commands(page: Path, *, shown: bool = False) -> list[str]:
    """The command lines that a page names, or those alone that stand in blocks of their own."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ").replace("\\|", "|")
    fenced = [line.strip() for block in FENCED.findall(text) for line in block.splitlines()]
    ticked = [] if shown else re.findall(r"`([^`\n]+)`", FENCED.sub("", text))
    words = [line.removeprefix("$ ").removeprefix("./scripts/") for line in [*fenced, *ticked]]
    return [line for line in words if line.startswith("meshwright ") and "VERB" not in line]


@pytest.mark.parametrize("page", sorted([README, *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]), ids=lambda page: page.stem)
def test_verbs_and_options_that_a_page_names_are_there(page):
    for line in commands(page):
        verb, *words = shlex.split(line)[1:]
        if verb == "--version":
            continue
        assert verb in VERBS, line
        fields = import_module(f"meshwright.cli.{MODULES.get(verb, verb)}").FIELDS
        known = {field.option for field in fields} | {"--help"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


EXAMPLES = ROOT / "examples" / "README.md"


@pytest.mark.parametrize("line", commands(EXAMPLES, shown=True), ids=lambda line: " ".join(line.split()[1:3]))
def test_an_example_runs(line):
    assert output(line.removeprefix("meshwright "))


def test_the_example_in_python_runs(tmp_path):
    path = ROOT / "examples" / "plan_and_check.py"
    spec = importlib.util.spec_from_file_location("plan_and_check", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        answer = module.main(tmp_path / "run")
    assert answer.ok
    assert (tmp_path / "run" / "train.sh").exists()
    lines = said.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "written:", "ok", "in"]
    assert "python examples/plan_and_check.py my-run" in EXAMPLES.read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(code, "README.md", "exec"), {})
    assert said.getvalue().startswith("tp")
