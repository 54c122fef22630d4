"""A first look at a mutant: in a fork of this process, where everything is imported, its functions get the code of the other text.

What a test fails under here, and passes under without a change, has been noticed. What no test of the room fails under, and what no
function holds, is tried in a copy of the tree (``trying.py``), where also other processes see it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import pytest

from benchmarks.mutants.trying import ROOT, SOURCE, Outcome, tests_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.mutants.trying import Mutant

LONGEST_CPU_S = 120
OPTIONS = ("-x", "-q", "-n0", "--all", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def warm_up() -> None:
    """Import the package; what needs a library that is not here is left to its tests."""
    os.chdir(ROOT)
    os.environ.setdefault("MESHWRIGHT_ORACLES", str(ROOT / ".oracles"))
    import meshwright

    for module in pkgutil.walk_packages(meshwright.__path__, "meshwright."):
        if not module.name.endswith("__main__") and ".engine." not in module.name:
            importlib.import_module(module.name)


def noticed(mutant: Mutant, tests: Sequence[str] | None = None) -> Outcome | None:
    """The first test that fails with the mutant and passes without it, of those of its room or others; None where there is none."""
    found = _in_fork(tests_of(mutant.path) if tests is None else tests, lambda: _patch(mutant))
    if not found["failed"] or _in_fork([found["failed"]], lambda: 1)["failed"]:
        return None
    return Outcome(killed=True, by=found["failed"], cpu_s=found["cpu_s"])


def _patch(mutant: Mutant) -> int:
    """Give every function of the source that is here its other code -> how many got another one."""
    file = str(ROOT / SOURCE / mutant.path)
    importlib.import_module(".".join(("meshwright", *mutant.path.removesuffix(".py").split("/"))).removesuffix(".__init__"))
    other = _codes(compile(mutant.text, file, "exec"))
    changed = 0
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == file:
            code = other.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
            if code is not None and code != each.__code__ and code.co_freevars == each.__code__.co_freevars:
                each.__code__ = code
                changed += 1
    return changed


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Every function of a source by its name and line."""
    found = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= {(each.co_qualname, each.co_firstlineno): each, **_codes(each)}
    return found


def _in_fork(tests: Sequence[str], prepare: Callable[[], int]) -> dict[str, object]:
    """The first of the tests that fails in a child, where ``prepare`` changed anything; ``failed`` is empty where none does."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _be(tests, prepare, write)
    os.close(write)
    _, _, used = os.wait4(child, 0)
    with os.fdopen(read, encoding="utf-8") as stream:
        said = stream.read()
    return {"failed": json.loads(said) if said else "", "cpu_s": round(used.ru_utime + used.ru_stime, 1)}


def _be(tests: Sequence[str], prepare: Callable[[], int], write: int) -> None:
    """The child: it never returns."""

    class First:
        failed = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CPU_S, LONGEST_CPU_S + 5))
        signal.alarm(8 * LONGEST_CPU_S)
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(null, stream)
        first = First()
        if prepare():
            for each in tests:  # one by one: of a file and its folder together pytest makes one order of its own
                if not first.failed:
                    pytest.main([*OPTIONS, each], plugins=[first])
        os.write(write, json.dumps(first.failed).encode())
    finally:
        os._exit(0)
