"""Which files are looked at, and by which rules: by what they are called, and scripts without a suffix by their first line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.lint.configurations import configuration_findings
from meshwright.lint.notebooks import notebook_findings
from meshwright.lint.python.run import python_findings
from meshwright.lint.scripts import script_findings

if TYPE_CHECKING:
    from meshwright.lint.found import Found

Look = Callable[[str, str], Iterator["Found"]]
_BY_SUFFIX: dict[str, Look] = {
    ".py": python_findings,
    ".ipynb": notebook_findings,
    ".json": configuration_findings,
    ".jsonc": configuration_findings,
    ".yaml": configuration_findings,
    ".yml": configuration_findings,
    **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch", ".sub", ".env"), script_findings),
}
_PROFILES = frozenset({".bashrc", ".bash_profile", ".profile", ".zshrc", ".env", "profile", "bashrc"})
_LEFT_OUT = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        "site-packages",
        ".eggs",
        "build",
        "dist",
        ".ipynb_checkpoints",
    }
)
_NO_TRAINING = re.compile(
    r"(^|/)(infer\w*|eval\w*|predict\w*|generation|serving|convert\w*|checkpoint)/|(^|/)(infer|eval|predict|generate|serve|convert)\w*\.\w+$"
)
"""Files that use a model, or change its format: nothing of them runs in the steps of a training either."""
_TESTS = re.compile(r"(^|/)(tests?|testing|unit_tests|\w*_tests|test_\w+)/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")
"""Files that test others: nothing in them runs in the steps of a training, and they wait and compare on purpose."""
MOST_FILES = 200_000


def look_of(path: Path) -> Look | None:
    """How a file is looked at; None where it is none of ours."""
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is not None:
        return found
    if path.name in _PROFILES:
        return script_findings
    return script_findings if not path.suffix and _is_script(path) else None


def _is_script(path: Path) -> bool:
    """Whether a file without a suffix begins as a script of the shell does."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            first = stream.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"sh" in first.rpartition(b"/")[2]


def files_of(paths: list[str]) -> Iterator[tuple[str, bool]]:
    """The files that paths name, each once, and whether it is, within a folder that was named, a test or another file
    that trains nothing. Folders come in the order of
    their names; links to folders are not followed.

    Errors:  ``InputError`` for a path that is not there, and for a file that no rule looks at.
    """
    seen: set[str] = set()
    for named in paths:
        path = Path(named)
        if not path.exists():
            raise fault("file.missing", "no such file", path=named)
        if path.is_dir():
            found = _inside(named)
        elif look_of(path) is None:
            raise fault("lint.kind", "neither Python, a notebook, a script of the shell, JSON nor YAML", path=named)
        else:
            found = iter(((named, False),))
        for each, tests in found:
            if each not in seen:
                seen.add(each)
                if len(seen) > MOST_FILES:
                    raise fault(
                        "lint.many", "more than {most:,} files: name the folders that are meant", path=named, most=MOST_FILES
                    )
                yield each, tests


def _inside(folder: str) -> Iterator[tuple[str, bool]]:
    """The files of a folder and of those in it, and whether each is none that trains."""
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(home, name)
            if path.is_file() and look_of(path) is not None:
                within = path.relative_to(folder).as_posix()
                yield str(path), bool(_TESTS.search(within) or _NO_TRAINING.search(within))
