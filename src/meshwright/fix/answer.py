"""Changes of a configuration in the terms of its own files, each with what it costs and what it means for a run that resumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from meshwright.documents.source import File
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout, Risk
    from meshwright.errors import Message
    from meshwright.fix.observed import Observed
    from meshwright.frameworks.resume import Meaning
    from meshwright.search.repair import Repairs, Wish

Sort = Literal["environment", "packing", "layout"]
"""What a move touches: a variable of the launch, how samples are packed, or the layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEdit:
    """One key, flag, variable or word of a label with its value before and after (None: it does not stand there)."""

    field: str
    before: object
    after: object
    file: str = ""
    """Empty where there are no files, or where the variable is set outside of them."""
    line: int = 0
    meaning: Meaning | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One decision behind a change: a knob, a variable, a limit. A change is as small as its moves are few."""

    sort: Sort
    words: str
    """``tp 4 -> 8``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that grants the wish."""

    moves: tuple[Move, ...]
    edits: tuple[FieldEdit, ...]
    """In the file's own terms; without files in those of the label."""
    layout: Layout
    estimate: Estimate
    fits: bool
    step_change_ratio: float | None
    step_change_interval: tuple[float, float] | None
    memory_change_bytes: float | None
    margin_bytes: float | None
    """Left on the tightest stage by what was observed; None where only the message says that it fits."""
    risk: Risk
    meaning: Meaning
    files: tuple[File, ...] = ()
    """Changed files, whole."""
    diff: str = ""
    by_hand: tuple[Message, ...] = ()
    """What stays to be done by hand."""
    launcher_only: bool = True
    """Whether that is only how many processes the launcher starts."""
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The answer to a wish: changes, smallest first, or what is missing and what comes nearest."""

    wish: Wish | None
    """None: nothing is wrong."""
    layout: Layout
    base: Estimate | None
    """The configuration as it is; None where no framework could run it."""
    broken: tuple[Message, ...]
    """Rules that it breaks."""
    changes: tuple[Change, ...]
    repairs: Repairs | None = None
    """How far layouts were searched; None where none was."""
    observed: Observed | None = None
    extra_bytes: float = 0.0
    """What was added to the prediction for what was observed."""
    bound_bytes: float = 0.0
    advice: tuple[Message, ...] = ()
    """What helps and is no edit, or cannot be predicted."""
    remarks: tuple[Message, ...] = ()
    levers: tuple[str, ...] = ()
    """What would make the case fit where no change of the layout does: the list of ``plan`` and ``explain``."""

    @property
    def granted(self) -> bool:
        """Whether the wish is true of the configuration as it is."""
        found = self.repairs.found if self.repairs is not None else ()
        return any(not each.edits and each.layout.world == self.layout.world for each in found)
