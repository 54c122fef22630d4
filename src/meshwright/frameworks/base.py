"""What a framework is to Meshwright: a name, what it can express, what it refuses, and a writer of launch files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout

Noticed = Literal["parse", "start", "step", "never"]
"""When the framework itself notices: reading its arguments, building its groups, in the first step, or not at all."""
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to be written: a relative path, its text, and whether it can be executed."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an export may add to a layout; the layout alone is enough."""

    estimate: Estimate | None = None
    """Predicted figures, quoted in the files."""
    label: str = ""
    """Name of the plan, for comments and job names."""
    train_iters: int | None = None
    """Optimizer steps; None: what the tokens of the training ask for, or a short run."""


DEFAULTS = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One validity rule of a framework: an identifier, its own words, and the values where it is broken.

    ``words`` is the framework's message with its values in braces; ``broken`` gives those values, or None where the
    rule holds.
    """

    id: str
    words: str
    noticed: Noticed
    broken: Callable[[Case, Layout], Values | None]
    path: str = "layout"
    """What the message is about: layout, model, training or cluster."""

    def check(self, case: Case, layout: Layout) -> Message | None:
        """The message that the framework would give, or None."""
        values = self.broken(case, layout)
        return None if values is None else Message(self.id, self.words, values, path=self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A training framework. ``writer`` is None where only planning for it is supported so far."""

    name: str
    title: str
    features: Features
    implementation: str
    """Name of the implementation in the catalogue whose kernels and buffers it runs with."""
    aliases: tuple[str, ...] = ()
    version: str = ""
    """The version that files are written for unless another is asked for."""
    limits: tuple[Limit, ...] = ()
    writer: Callable[[Case, Layout, str | None, Options], tuple[File, ...]] | None = None

    def check(self, case: Case, layout: Layout) -> tuple[Message, ...]:
        """Every rule of the framework that the layout breaks, in the order of ``limits``."""
        return tuple(message for limit in self.limits if (message := limit.check(case, layout)) is not None)

    def write(self, case: Case, layout: Layout, *, version: str | None = None, options: Options = DEFAULTS) -> tuple[File, ...]:
        """Launch files of this layout; an ``InputError`` names everything that the framework cannot run."""
        if self.writer is None:
            raise fault(
                "framework.no-writer",
                "writing files for {title} is not supported yet: plan for it, or export to megatron",
                title=self.title,
            )
        if broken := self.check(case, layout):
            raise InputError(broken)
        return self.writer(case, layout, version, options)
