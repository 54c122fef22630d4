"""Of large families a few cases are drawn by the commit: all of them over many, and nothing else is left out."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from drawn_cases import LEAST, SHARE, WHOLE, commit, drawn

HERE = Path(__file__).parent
SUITE = f"""
import pytest

@pytest.mark.parametrize("number", range(40))
def test_large(number):
    assert number >= 0

@pytest.mark.parametrize("number", range({WHOLE}))
def test_small(number):
    pass

@pytest.mark.matrix
@pytest.mark.parametrize("number", range(9))
def test_asked_for(number):
    pass

def test_single():
    pass
"""
EVERY = 40 + WHOLE + 9 + 1


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = matrix\n")
    own = {"PYTHONPATH": str(HERE), "PYTEST_ADDOPTS": "-p drawn_cases -p no:cacheprovider", "MESHWRIGHT_FUZZ": "0"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")} | own

    def run(*arguments, **more):
        command = [sys.executable, "-m", "pytest", "-v", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment | more, capture_output=True, text=True, check=False).stdout

    return run


def cases(said, word="PASSED"):
    return sorted({name for line in said.splitlines() if word in line for name in line.split() if "::" in name})


@pytest.mark.parametrize(("size", "number"), [(WHOLE + 1, LEAST), (SHARE * LEAST, LEAST), (SHARE * LEAST + 1, LEAST + 1)])
def test_so_many_are_drawn_whatever_their_order(size, number):
    names = [f"case {place}" for place in range(size)]
    assert len(drawn(names, "a")) == number
    assert drawn(names, "a") == drawn(names[::-1], "a") <= set(names)


def test_over_commits_every_case_has_its_turn():
    names = [f"case {place}" for place in range(100)]
    times = [name for seed in range(200) for name in drawn(names, str(seed))]
    assert set(times) == set(names)
    assert max(map(times.count, names)) < 60  # 26 on average


def test_a_plain_run_leaves_out_of_large_families_alone_and_workers_agree(suite):
    alone, beside = suite("--draw-seed", "abc"), suite("--draw-seed", "abc", "-n", "2")
    assert cases(alone) == cases(beside) != cases(suite("--draw-seed", "other"))
    tests = Counter(name.partition("::")[2].partition("[")[0] for name in cases(alone))
    assert tests == {"test_large": 5, "test_small": WHOLE, "test_asked_for": 9, "test_single": 1}
    for said in (alone, beside):
        assert said.count(f"{tests.total()} of {EVERY} cases: ") == said.count("--draw-seed abc; --all runs every case") == 1


@pytest.mark.parametrize(("arguments", "number"), [
    (["--all"], EVERY), (["test_suite.py::test_large"], 40), (["-k", "large"], 40),
])
def test_what_is_asked_for_runs_whole(suite, arguments, number):
    assert len(cases(suite(*arguments))) == number


def test_random_tests_that_draw_more_draw_every_case(suite):
    assert len(cases(suite(MESHWRIGHT_FUZZ="1"))) == EVERY


def test_a_drawn_case_that_fails_says_how_to_run_it_again(suite, tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE.replace("number >= 0", "False"))
    said = suite("--draw-seed", "abc")
    assert len(cases(said, "FAILED")) == 5
    for name in cases(said, "FAILED"):
        assert f"one of 5 drawn from 40 by --draw-seed abc; it again:\nscripts/test '{name}'\n" in said


def test_the_seed_is_the_commit_where_there_is_one(tmp_path):
    assert commit(tmp_path) == "none"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    said = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert len(commit(tmp_path)) >= 12
    assert said.startswith(commit(tmp_path))
