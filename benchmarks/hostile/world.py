"""What generators draw from: the options that a tree's verbs have, and files that its ``plan --save`` wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.hostile.commands import FRAMEWORKS, VERBS, Option, case_of, options

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[[tuple[str, ...], Path], tuple[int, str, str]]


@dataclass(slots=True)
class World:
    """One tree under test. ``run`` runs a command line in a folder and returns status, output and errors."""

    fixtures: Path
    run: Run
    _options: dict[str, tuple[Option, ...]] = field(default_factory=dict)

    def options(self, verb: str) -> tuple[Option, ...]:
        """The options of a verb, asked once."""
        if verb not in self._options:
            status, out, err = self.run((verb, "--help"), self.fixtures)
            self._options[verb] = options(out)
            if status or not self._options[verb]:
                raise SystemExit(f"{verb} --help: {err}")
        return self._options[verb]

    def option(self, rng: random.Random, verb: str, *kinds: str) -> Option | None:
        """A drawn option of some kinds, if the verb has one."""
        fitting = [each for each in self.options(verb) if each.kind in kinds]
        return rng.choice(fitting) if fitting else None

    def text(self, framework: str, name: str) -> str:
        """A file of a framework's plan, written by the tree itself the first time."""
        self.framework(framework)
        return (self.fixtures / framework / name).read_text(encoding="utf-8")

    def framework(self, framework: str) -> None:
        """The files of a framework's plan are there."""
        if not (self.fixtures / framework).exists():
            status, _, err = self.run(("plan", *case_of(framework), "--save", framework), self.fixtures)
            if status:
                raise SystemExit(f"the well-formed plan of {framework} ends with {status}: {err}")

    def ready(self, setup: tuple[str, ...]) -> None:
        """The fixtures that lines of set-up name are there."""
        for framework in FRAMEWORKS:
            if any(f"$FIXTURES/{framework}/" in line for line in setup):
                self.framework(framework)

    def verb(
        self, rng: random.Random, among: tuple[str, ...] = VERBS, rare: tuple[str, ...] = ("profile", "rehearse", "step", "dryrun")
    ) -> str:
        """A drawn verb; those that measure come less often."""
        return rng.choices(among, [1 if each in rare else 3 for each in among])[0]
