"""One mutant in a copy of the tree: the tests of its room are run there until one fails."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "src/meshwright"
ROOMS: Mapping[str, Sequence[str]] = yaml.safe_load((Path(__file__).parent / "rooms.yaml").read_text(encoding="utf-8"))
LONGEST_CPU_S = 400
"""A mutant under which tests take so long has been noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A source with one line changed."""

    path: str
    """Below ``src/meshwright``."""
    kind: str
    line: int
    before: str
    after: str
    """The line, without the blanks around it."""
    text: str
    """The whole source."""

    @property
    def key(self) -> str:
        """What a result is found by again: a line may move, what stands in it may not."""
        return f"{self.path}|{self.before}|{self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the tests said."""

    killed: bool
    by: str
    """The first test that failed, or why it is noticed otherwise."""
    cpu_s: float


def tests_of(path: str) -> Sequence[str]:
    """The tests that see a source."""
    return ROOMS[max((room for room in ROOMS if path == room or path.startswith(f"{room}/")), key=len)]


def rooms_with_tests(path: str) -> bool:
    """Whether a source stands in a room that has tests of its own."""
    return any(path == room or path.startswith(f"{room}/") for room in ROOMS)


class Copy:
    """A copy of the tree's tracked files, in which one source at a time is another."""

    def __init__(self) -> None:
        """Copy; the folder goes with the object."""
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self.root = Path(self._folder.name)
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True)
        names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes((ROOT / name).read_bytes())

    def tried(self, path: str, text: str) -> Outcome:
        """Run the tests of a source with another text; the one that fails must pass with the source as it is.

        Errors:  ``RuntimeError`` where it does not.
        """
        file = self.root / SOURCE / path
        whole = file.read_text(encoding="utf-8")
        try:
            self._put(file, text)
            outcome = self._run(tests_of(path))
        finally:
            self._put(file, whole)
        if outcome.killed and "::" in outcome.by and self._run([outcome.by]).killed:
            raise RuntimeError(f"{outcome.by} fails without a change")
        return outcome

    def _put(self, file: Path, text: str) -> None:
        """Another text, and none that was compiled from the one before."""
        file.write_text(text, encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()

    def _run(self, tests: Sequence[str]) -> Outcome:
        environment = {
            "MESHWRIGHT_ORACLES": str(ROOT / ".oracles"), **os.environ, "PYTHONPATH": str(self.root / "src"),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        }
        options = ["-x", "-q", "-n0", "--all", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CPU_S, LONGEST_CPU_S + 5)),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        by = failed[0].split(" ", 1)[1].split(" - ")[0] if failed else f"status {run.returncode}, {time.monotonic() - begun:.0f} s"
        return Outcome(killed=run.returncode != 0, by=by if run.returncode else "", cpu_s=round(cpu_s, 1))
