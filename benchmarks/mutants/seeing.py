"""Which tests execute a line: each test file is run once under ``coverage``; what it saw is kept in a folder that git ignores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "src/meshwright"
SEEN = ROOT / ".seen"
ELSEWHERE = (
    "test_wheel.py", "test_readme.py", "test_project.py", "test_kills_sample.py", "test_outputs_killed.py", "test_engine_parity.py",
)
"""Tests that run the package in other processes, where nothing is seen."""


def see(rooms: Sequence[str] = ("tests",)) -> None:
    """Run what was not run yet of some folders; a test file that is removed from ``.seen`` is run again.

    Errors:  ``ModuleNotFoundError`` without ``coverage``, which no other command needs.
    """
    import coverage  # noqa: F401  # asked before minutes are spent

    SEEN.mkdir(exist_ok=True)
    if not (SEEN / "src").exists():
        shutil.copytree(ROOT / SOURCE, SEEN / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for test in (each for room in rooms for each in sorted((ROOT / room).rglob("test_*.py"))):
        name = test.relative_to(ROOT).as_posix()
        data = SEEN / f"{name.replace('/', '+')}.cov"
        if data.exists() or test.name in ELSEWHERE:
            continue
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "SEEN_DATA": str(data), "SEEN_SOURCE": str(ROOT / SOURCE), "PYTHONPATH": path}
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "benchmarks.mutants.contexts", "-p", "no:cacheprovider", name]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        print(f"{name}: {run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.returncode}", flush=True)


@dataclass(frozen=True)
class Seen:
    """What lies in the folder."""

    folder: Path = SEEN

    @cached_property
    def files(self) -> dict[str, tuple[Path, dict[str, float]]]:
        """Test file -> its data and seconds by test."""
        found = {}
        for data in sorted(self.folder.glob("*.cov")):
            times = data.with_suffix(".json")
            if times.exists():
                found[data.stem.replace("+", "/")] = (data, json.loads(times.read_text(encoding="utf-8")))
        return found

    def tests(self, path: str, number: int, line: str) -> list[str]:
        """Every test that executes a line, the cheapest files first; none of lines that only an import executes."""
        if not self.files:
            return []
        from coverage import CoverageData

        place, found = self._then(path, number, line), []
        for test, (data, took_s) in self.files.items():
            kept = CoverageData(str(data))
            kept.read()
            names = [name for name in kept.measured_files() if name.endswith(f"/{SOURCE}/{path}")]
            nodes = {node for name in names for node in kept.contexts_by_lineno(name).get(place, ()) if node}
            kept.close()
            if "setup" in nodes:
                found.append((sum(took_s.values()), [test]))
            elif nodes:
                found.append((sum(took_s.get(node, 0.0) for node in nodes), sorted(nodes, key=lambda node: took_s.get(node, 0.0))))
        return [node for _, nodes in sorted(found) for node in nodes]

    def _then(self, path: str, number: int, line: str) -> int:
        """Where a line stood when tests were seen."""
        lines = (self.folder / "src" / path).read_text(encoding="utf-8").splitlines()
        places = [place for place, each in enumerate(lines, start=1) if each.strip() == line]
        return min(places, key=lambda place: abs(place - number), default=0)
