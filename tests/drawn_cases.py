"""Which cases of large families a run tries: a few, drawn by the commit, so that over commits every case has its turn.

A family is one test function with parameters. Of more than ``WHOLE`` cases one in ``SHARE`` is drawn, never fewer than ``LEAST``.
Everything else runs always, and so does every case in a file that the command line names, of a run that looks for something
(``-k``, ``--lf``), and of ``-m matrix``. ``--all`` and ``MESHWRIGHT_FUZZ`` leave nothing out, ``--draw-seed`` draws as another
commit did.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Collection, Generator, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from draws import FUZZ
from shared import folder, once

WHOLE = 3
SHARE = 8
LEAST = 2
AGAIN = pytest.StashKey[str]()
"""Of a drawn case: out of how many, and how to try it again."""
SAID = pytest.StashKey[str]()
"""Of a run: what it draws."""


def drawn(cases: Collection[str], seed: str) -> set[str]:
    """Names of the cases of one family that a seed draws, whatever their order."""
    number = max(LEAST, -(-len(cases) // SHARE))
    return set(sorted(cases, key=lambda case: sha256(f"{seed} {case}".encode()).digest())[:number])


def commit(root: Path) -> str:
    """The commit that stands in a folder, of which twelve digits; ``none`` where no git knows."""
    asked = ["git", "-c", "safe.directory=*", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def families(items: Iterable[pytest.Item], whole: Collection[Path]) -> list[list[pytest.Item]]:
    """Cases by their function, of those that are more than ``WHOLE``; none of the files ``whole`` and none of ``-m matrix``."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec") and item.path not in whole and item.get_closest_marker("matrix") is None:
            found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [cases for cases in found.values() if len(cases) > WHOLE]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drawn cases", "of large families of cases a few are drawn")
    group.addoption("--all", action="store_true", dest="all_cases", help="every case runs, none is drawn")
    group.addoption("--draw-seed", metavar="SEED", help="what is drawn by; default: the commit")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.draw_seed is None:  # workers are told what the process that started them found
        config.option.draw_seed = commit(config.rootpath)


def _named(config: pytest.Config) -> set[Path]:
    """Files that the command line names, or cases in them."""
    paths = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return {path.resolve() for path in paths if path.is_file()}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option = config.option
    if option.all_cases or FUZZ or option.keyword or getattr(option, "lf", False):
        return
    left_out: set[pytest.Item] = set()
    large = families(items, _named(config))
    for family in large:
        kept = drawn([case.nodeid for case in family], option.draw_seed)
        for case in family:
            if case.nodeid in kept:
                of = f"one of {len(kept)} drawn from {len(family)} by --draw-seed {option.draw_seed}"
                case.stash[AGAIN] = f"{of}; it again:\nscripts/test {shlex.quote(case.nodeid)}"
            else:
                left_out.add(case)
    said = (
        f"{len(items) - len(left_out)} of {len(items)} cases: of {len(large)} families of more than {WHOLE} one in {SHARE},"
        f" drawn by --draw-seed {option.draw_seed}; --all runs every case"
    )
    config.stash[SAID] = once("drawn_cases", lambda: said)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    return config.stash.get(SAID, "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Of workers the process that started them says it, which collects nothing itself."""
    config, kept = node.config, folder() / "drawn_cases.json"
    if SAID not in config.stash and kept.exists():
        config.stash[SAID] = json.loads(kept.read_text())
        config.get_terminal_writer().line(config.stash[SAID])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and AGAIN in item.stash:
        report.sections.append(("a drawn case", item.stash[AGAIN]))
    return report
