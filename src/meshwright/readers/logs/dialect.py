"""A framework's way of printing its steps, and how a log of it is read in one pass beside the signs that any log may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from meshwright.domain.observed import RunLog
from meshwright.readers.formats import Format
from meshwright.readers.lines import Hit, Search, tells
from meshwright.readers.logs.draft import Draft
from meshwright.readers.needles import Needles
from meshwright.readers.signs import Signs, anchors
from meshwright.readers.source import Source
from meshwright.value import Value

SPARED = 64
"""Of so many parts of a file one is read where nearly every line complains."""
MOST_LINES = 20_000
"""Of a log's own lines: of one that has more only windows are read, alike in distance."""


class Dialect(Value, frozen=True, kw_only=True):
    """What is sought in a log of one framework, and what its lines say."""

    name: str
    says: str
    framework: str = ""
    tells: re.Pattern[str]
    """What a log of it holds somewhere."""
    by: tuple[bytes, ...]
    """Literal texts near which ``tells`` is tried."""
    seeks: tuple[bytes, ...]
    """Literal texts of the lines that are read."""
    take: Callable[[Draft, Hit], None]
    finish: Callable[[Draft], None] = lambda _: None
    """What follows from all lines together."""

    @property
    def format(self) -> Format:
        """The format of such logs."""
        return self.as_told_by(self.told)

    def as_told_by(self, told: Callable[[bytes], bool]) -> Format:
        """The format of such logs where something else says whether a file is one."""
        return Format(name=self.name, says=self.says, told=told, read=self.read)

    def told(self, sample: bytes) -> bool:
        """Whether a sample has lines of it."""
        return tells(sample, self.by, self.tells)

    def read(self, source: Source) -> tuple[RunLog, ...]:
        """The log, where it says anything of a run."""
        sought = (*self.seeks, *anchors())
        search = Search(Needles(sought, source.excerpt, thinned=len(self.seeks)), every=_every(source, self.seeks))
        draft, signs = Draft(), Signs(source.shown)
        many = False
        for hit in search.hits(source):
            if signs.many and not many:
                many = True
                search.spare(SPARED)
                draft.note(f"Behind line {hit.line.number:,} complaints are counted in one part of {search.every} only.")
            if hit.found[0] < len(self.seeks):
                self.take(draft, hit)
            if hit.found[-1] >= len(self.seeks):
                signs.take(hit.line, [each - len(self.seeks) for each in hit.found if each >= len(self.seeks)])
        self.finish(draft)
        if search.every > 1:
            draft.note(f"Of a log this long one part in {search.every} is read for steps, at even distances.")
        for reason in source.broken:
            draft.note(f"The file ends before its end: {reason}.")
        if not (draft.steps or draft.timers or draft.memory or draft.figures or draft.settings or signs.found):
            return ()
        return (draft.finished(
            file=source.shown, format=self.name, framework=self.framework, signs=signs.found, lines=search.lines),)


def _every(source: Source, seeks: Sequence[bytes]) -> int:
    """Of how many windows one is read, by how dense the sample is."""
    sample, total = source.sample, source.size_bytes
    if total <= len(sample):
        return 1
    places, _ = Needles(seeks, source.excerpt).places(sample, len(sample), len(sample))
    breaks = np.flatnonzero(np.frombuffer(sample, np.uint8) == ord("\n"))
    return max(1, round(len(np.unique(np.searchsorted(breaks, places))) / len(sample) * total / MOST_LINES))
