"""What a public project says of itself in several places says the same in all of them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import meshwright as mw

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PINNED = re.compile(r'"ruff==([\d.]+)"')


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_one():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/meshwright/version.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", mw.__version__)
    assert yaml.safe_load(text("CITATION.cff"))["version"] == mw.__version__
    assert f"\n## [{mw.__version__}] - " in text("CHANGELOG.md")
    assert "\n## [Unreleased]\n" in text("CHANGELOG.md")


def test_licence_and_authors_are_the_same_everywhere():
    project, citation = PROJECT["project"], yaml.safe_load(text("CITATION.cff"))
    assert project["license"] == citation["license"] == "Apache-2.0"
    assert text("LICENSE").split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert project["authors"] == citation["authors"] == [{"name": "the Meshwright developers"}]
    assert "urls" not in project  # until there is a home
    assert set(citation["keywords"]) <= set(project["keywords"])


def test_the_forge_runs_what_the_readme_runs_on_the_pythons_that_are_named():
    jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert "bash .ci/run" in commands
    assert "MESHWRIGHT_PYTHON=python scripts/wheel-smoke" in commands
    nightly = yaml.safe_load(text(".github/workflows/nightly.yml"))["jobs"]["everything"]["steps"]
    assert {"bash scripts/test --all", "bash scripts/test -m matrix"} <= {step.get("run") for step in nightly}
    pythons = jobs["wheel"]["strategy"]["matrix"]["python"]
    assert {f"Programming Language :: Python :: {python}" for python in pythons} <= set(PROJECT["project"]["classifiers"])


def test_pre_commit_has_the_ruff_of_the_checks():
    (hook,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    assert hook["rev"] == f"v{PINNED.search(text('pyproject.toml'))[1]}"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one_that_a_forge_can_show(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "labels", "body"} == set(form)
    fields = [field["id"] for field in form["body"]]
    assert len(fields) == len(set(fields))
    for field in form["body"]:
        assert field["type"] in {"textarea", "input", "dropdown"}
        assert field["attributes"]["label"]
        assert (field["type"] == "dropdown") == ("options" in field["attributes"])


def test_the_forms_ask_for_what_is_needed():
    asked = {path.stem: {field["id"] for field in yaml.safe_load(path.read_text(encoding="utf-8"))["body"]} for path in FORMS}
    assert {"command", "output", "version"} <= asked["bug"]
    assert "rows" in asked["prediction"]
    assert "feature" in asked
