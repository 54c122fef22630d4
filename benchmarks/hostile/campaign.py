"""A tree under test: its program imported once, its cases run one after the other in forked children."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.hostile import draw_descriptions, draw_ends, draw_files, draw_known, draw_launches, draw_options, draw_outputs
from benchmarks.hostile.case import encoded
from benchmarks.hostile.commands import CASE, LAYOUT, MEASURING, documents
from benchmarks.hostile.judge import Judgement, Trial, judge
from benchmarks.hostile.sandbox import GIB, WALL_S, Child, Outcome, Start, finished
from benchmarks.hostile.snapshot import snapshot
from benchmarks.hostile.world import World

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from benchmarks.hostile.case import Case

GENERATORS = tuple(
    pair for module in (draw_options, draw_descriptions, draw_files, draw_outputs, draw_ends, draw_known, draw_launches)
    for pair in module.GENERATORS
)
STUBS = (
    "torchrun",
    "srun",
    "python",
    "python3",
    "deepspeed",
    "accelerate",
    "msrun",
    "mpirun",
    "sbatch",
    "scontrol",
    "nvidia-smi",
    "npu-smi",
    "ray",
)
MEASURING_S = 30.0
WARMING = (
    ("estimate", *CASE, *LAYOUT), ("catalog", "models"), ("catalog", "devices"), ("catalog", "frameworks"),
    ("catalog", "runs", "--near", "llama3-8b", "--device", "h100-sxm", "--nodes", "1"),
)
"""Run once before the first fork: what they read stays read. None of them starts a thread."""


class Campaign:
    """Where cases live and how they are run."""

    def __init__(self, tree: Path, scratch: Path) -> None:
        self.scratch, self.source = scratch, tree / "src"
        for name in ("fixtures/documents", "stubs", "cases"):
            (scratch / name).mkdir(parents=True, exist_ok=True)
        for name, text in documents().items():
            (scratch / "fixtures" / "documents" / name).write_text(text, encoding="utf-8")
        for name in STUBS:
            _script(scratch / "stubs" / name, "exit 0")
        _script(scratch / "stubs" / "canary", ': > "$CANARY_FILE"')
        self.main = self._imported()
        self.world = World(scratch / "fixtures", self._plainly)
        self.references: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[int, dict[str, object]]] = {}

    def _imported(self) -> Callable[[list[str]], int]:
        """``meshwright.cli.main`` of the tree, with all that needs no torch imported and the catalogue read once."""
        sys.path.insert(0, str(self.source))
        package = importlib.import_module("meshwright")
        assert Path(package.__file__ or "").is_relative_to(self.source), f"{package.__file__} is not of {self.source}"
        for module in pkgutil.walk_packages(package.__path__, "meshwright.", onerror=lambda name: None):
            if ".engine" not in module.name and not module.name.endswith("__main__"):
                with suppress(Exception):
                    importlib.import_module(module.name)
        main: Callable[[list[str]], int] = importlib.import_module("meshwright.cli").main
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            for command in WARMING:
                main(list(command))
        gc.collect()
        gc.freeze()
        return main

    def draw(self, rng: random.Random) -> Case:
        """One drawn case."""
        generators, weights = zip(*GENERATORS, strict=True)
        return rng.choices(generators, weights)[0](rng, self.world)  # type: ignore[no-any-return]

    def run(self, case: Case) -> Judgement:
        """Fill a folder, run the case in it, judge, and clean up."""
        folder = self._filled(case)
        before = snapshot(folder)
        outcome, other = self._ended(case, folder)
        trial = Trial(case, folder, outcome, before, snapshot(folder), other)
        try:
            return judge(trial, self)
        finally:
            _removed(folder)

    def again(self, case: Case, folder: Path, **changes: object) -> Outcome:
        """The same command line once more in a folder, without signal."""
        return self._ended(replace(case, signal="", beside=(), **changes), folder)[0]  # type: ignore[arg-type]

    def reference(self, case: Case, arguments: tuple[str, ...]) -> tuple[int, dict[str, object]]:
        """Status and files of an undisturbed run of a command line in the case's folder."""
        key = (case.setup, arguments)
        if key not in self.references:
            calm = replace(case, signal="", beside=(), arguments=arguments)
            folder = self._filled(calm)
            outcome, _ = self._ended(calm, folder)
            self.references[key] = (outcome.status, dict(snapshot(folder)))
            _removed(folder)
        return self.references[key]

    def environment(self, folder: Path, case: Case | None = None) -> dict[str, str]:
        """What a command sees: nothing of this machine's but a path with stubs."""
        base: dict[str, str | None] = {
            "PATH": f"{self.scratch / 'stubs'}:/usr/bin:/bin", "HOME": str(folder.parent / "home"), "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "COLUMNS": "120",
            "CANARY_FILE": str(folder / "canary"), "PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        return {name: value for name, value in {**base, **(case.environment if case else {})}.items() if value is not None}

    def _filled(self, case: Case) -> Path:
        """A fresh folder with what the case's set-up makes."""
        self.world.ready(case.setup)
        top = self.scratch / "cases" / f"{time.monotonic_ns():x}"
        folder = top / "work"
        folder.mkdir(parents=True)
        (top / "home").mkdir()
        if case.setup:
            script = self.scratch / "setup.sh"
            script.write_bytes(encoded("\n".join(case.setup)))
            environment = {"PATH": "/usr/bin:/bin", "FIXTURES": str(self.scratch / "fixtures"), "LANG": "C.UTF-8"}
            subprocess.run(["/bin/bash", str(script)], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=60, check=False)
        return folder

    def _ended(self, case: Case, folder: Path) -> tuple[Outcome, Outcome | None]:
        """The outcome of a case, and of the command beside it."""
        child = Child(self._start(case, folder, case.arguments), self.main)
        if case.beside:
            child.wait(case.after_s)
            beside = Child(self._start(case, folder, case.beside), self.main)
            return finished(child), finished(beside)
        if case.at_write:
            _until_written(child, folder)
        if case.signal and not child.wait(case.after_s):
            number = getattr(signal, f"SIG{case.signal}")
            sent = time.monotonic()
            child.send(number)
            stopped = not child.wait(10.0)
            took_s = time.monotonic() - sent
            if stopped:
                child.send(signal.SIGKILL)
                child.wait(5.0)
            return child.finish(stopped=stopped, took_s=took_s), None
        return finished(child, MEASURING_S if case.verb in MEASURING else WALL_S), None

    def _start(self, case: Case, folder: Path, arguments: tuple[str, ...]) -> Start:
        limit = GIB if case.file_limit_kib is None else case.file_limit_kib * 1024
        executable = (sys.executable, "-m", "meshwright") if case.process else ()
        return Start(folder, arguments, self.environment(folder, case), case.out, case.err, executable, case.privileged, limit)

    def _plainly(self, arguments: tuple[str, ...], folder: Path) -> tuple[int, str, str]:
        """A command line that is expected to work."""
        outcome = finished(
            Child(Start(folder, arguments, {**self.environment(folder), "COLUMNS": "200"}, privileged=True), self.main)
        )
        return outcome.status, outcome.out, outcome.err


def _until_written(child: Child, folder: Path) -> None:
    """Wait until the command changes an entry of its folder, or ends."""
    inner = (each for each in folder.rglob("*") if not each.is_symlink() and (each.is_dir() or each.is_file()))
    places = [folder.parent, folder, *inner]
    moments = [place.stat().st_mtime_ns for place in places]
    until = time.monotonic() + WALL_S
    while time.monotonic() < until and not child.wait(0.0002):
        with suppress(OSError):
            if [place.stat().st_mtime_ns for place in places] == moments:
                continue
        return


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def _removed(folder: Path) -> None:
    """The case's folder, whatever rights it has."""
    with suppress(OSError):
        for name, _, _ in os.walk(folder.parent):
            Path(name).chmod(0o755)
    shutil.rmtree(folder.parent, ignore_errors=True)
