"""What a check is asked: files as read, the case that they are to train, and what somebody claims of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field

from meshwright.check.owners import strange_files
from meshwright.errors import Message
from meshwright.estimate.single import estimate
from meshwright.frameworks.settings import Finding, Severity
from meshwright.judging.facts import Facts
from meshwright.search.legality import arithmetic_refusals, shape_refusals

if TYPE_CHECKING:
    from meshwright.check.claim import Claim
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Device
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading


class Question(Struct, frozen=True, kw_only=True):
    """Files and what is known beside them; every part but the files may be missing."""

    framework: Framework
    """At the release that the files are read for."""
    reading: Reading
    case: Case | None = None
    model: Model | None = None
    device: Device | None = None
    num_devices: int | None = None
    asked: Mapping[str, object] = field(default_factory=dict)
    """What the user said beside the files, by the field of ``Said`` that says the same; it wins, and is compared."""
    starts: int | None = None
    """Devices that the files start by themselves, where the user said another number beside them."""
    claims: tuple[Claim, ...] = ()
    impossible: tuple[Message, ...] = ()
    """What the files say of the case that no case can be."""
    wanted: str = ""
    """Where there is no case: the options that would make it one."""


class Context:
    """A question and what several checks derive from it; each answer is computed when it is first asked for, and once."""

    def __init__(self, question: Question) -> None:
        """Keep the question."""
        self.question = question
        self.framework, self.reading, self.case = question.framework, question.reading, question.case
        self.skipped: list[str] = []
        """Checks that could not be made, and why; one line each."""

    @cached_property
    def layout(self) -> Layout | None:
        """The layout of the files under the batch that was asked for; None where there is none."""
        layout, case = self.reading.layout, self.case
        if layout is None or case is None:
            return layout
        share = layout.data_parallel * layout.microbatch_sequences
        batch = case.batch.global_batch_sequences
        if share * layout.num_microbatches == batch:
            return layout
        return None if batch % share else replace(layout, num_microbatches=batch // share)

    @cached_property
    def strangers(self) -> Mapping[str, Framework | None]:
        """Files that the framework knows no key of, with the framework that does."""
        return strange_files(self.framework, self.reading)

    @cached_property
    def malformed(self) -> tuple[str, ...]:
        """Why the layout cannot even be looked at."""
        return () if self.layout is None or self.case is None else shape_refusals(self.case, self.layout)

    @cached_property
    def refusals(self) -> tuple[str, ...]:
        """Why the layout makes no sense for any framework; empty where it can be estimated."""
        if self.case is None or self.layout is None:
            return ()
        return arithmetic_refusals(self.case, self.framework.features, self.layout)

    @cached_property
    def estimate(self) -> Estimate | None:
        """The prediction of the layout, where it can be made."""
        if self.case is None or self.layout is None or self.refusals:
            return None
        return estimate(self.case, self.layout)

    @cached_property
    def facts(self) -> Facts | None:
        """What the rules of the guides ask, where there is a prediction."""
        if self.case is None or self.layout is None or self.estimate is None:
            return None
        return Facts(self.case, self.layout, self.framework.features, self.estimate, self.framework)

    def place(self, key: str) -> str:
        """Where a key stands, as ``train.sh:14``; empty where it does not."""
        setting = self.reading.source.setting(key)
        return setting.place if setting is not None else ""

    def knob_place(self, word: str) -> str:
        """Where the first key of a layout word stands."""
        if self.framework.surface is None:
            return ""
        keys = (key for key, knob in self.framework.surface().knobs().items() if knob == word)
        return next((place for key in keys if (place := self.place(key))), "")


def finding(
    severity: Severity, id: str, template: str, *, path: str = "", value: object = None, expected: object = None,
    source: str = "", **values: object,
) -> Finding:
    """A finding with one message; ``value`` and ``expected`` can also be named in the template."""
    known = {"value": value, "expected": expected, **values}
    message = Message(id, template, known, path=path)
    return Finding(message=message, severity=severity, value=value, expected=expected, source=source)
