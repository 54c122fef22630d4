"""Events of a Chrome trace, piece by piece: what is held is a piece of the file and the events in it, however large the file.

A piece is cut behind what looks like the end of an event, spelt as in the piece before. Whether the cut is right is not assumed but
seen: what stands before it decodes as whole items, which it does not where the cut lies inside of one. Where no cut decodes,
brackets and strings are followed one by one (``json_walk``), which any layout allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import msgspec

from meshwright.errors import fault
from meshwright.readers.traces.event import Decoder
from meshwright.readers.traces.json_walk import items, member, past_blank, past_value

if TYPE_CHECKING:
    from meshwright.readers.source import Source

PIECE = 8 << 20
"""Bytes read at a time."""
MAX_ITEM = 64 << 20
"""Bytes of one event, or of one value beside the events, that is waited for."""
MAX_KEPT = 4 << 20
"""Bytes of a value beside the events that is kept."""
_EVENTS = b"traceEvents"
_BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"[^"\\]{0,40}"')
_BEHIND = 200
"""Bytes looked at behind a brace for the next event."""
ATTEMPTS, MAX_BRACES = 3, 100_000
"""Cuts that are tried before brackets are followed, and ends of objects that are looked at for them."""


@dataclass
class Pieces:
    """The events of a file; what stands beside them and how the file ended is known once they were walked through."""

    source: Source
    kind: Any
    size: int = PIECE
    beside: dict[str, Any] = field(default_factory=dict)
    """Values beside the events, by key."""
    complete: bool = False
    """Whether the file's end was met where it should be."""
    events: int = 0

    def __post_init__(self) -> None:
        """One decoder for all pieces."""
        self.decoder = Decoder(self.kind)
        self._spelling = b""

    def __iter__(self) -> Iterator[list[Any]]:
        """Lists of events in the file's order.

        Errors:  ``InputError`` where no events begin in it.
        """
        with self.source.open() as stream:
            feed = _Feed(stream, self.size)
            bare = self._open(feed)
            for events in self._inside(feed):
                self.events += len(events)
                if events:
                    yield events
            if self.complete and not bare:
                self.complete = self._members(feed)
            self.complete = self.complete and not self.source.broken

    def _open(self, feed: _Feed) -> bool:
        """Go to the first event; whether the file is a bare list."""
        while feed.more() and not feed.text.strip():
            pass
        feed.drop(past_blank(feed.text, 0))
        if feed.text[:3] == b"\xef\xbb\xbf":
            feed.drop(past_blank(feed.text, 3))
        if feed.text[:1] == b"[":
            return True
        if feed.text[:1] == b"{":
            feed.drop(1)
            if self._members(feed, _EVENTS):
                return False
        raise fault("trace.none", "no list of events (traceEvents) begins in it", path=self.source.shown)

    def _members(self, feed: _Feed, until: bytes | None = None) -> bool:
        """Keep members of the outer object to its end, or to the list of the key ``until``; whether that was reached."""
        while True:
            key, start = member(feed.text, 0)
            if start >= 0 and not key:
                return until is None
            if start >= 0 and until and key == until and feed.text[start:start + 1] == b"[":
                feed.drop(start)
                return True
            end = past_value(feed.text, start) if start >= 0 else -1
            if end >= 0:
                self._keep(key, bytes(feed.text[start:end]))
                feed.drop(end)
            elif len(feed.text) > MAX_ITEM or not feed.more():
                return False

    def _keep(self, key: bytes, value: bytes) -> None:
        if len(value) <= MAX_KEPT and len(self.beside) < 1000:
            try:
                self.beside[key.decode("utf-8", "replace")] = msgspec.json.decode(value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self.decoder.wrong.mended += 1

    def _inside(self, feed: _Feed) -> Iterator[list[Any]]:
        """Events to the end of their list, whose bracket or a comma stands in front; the feed then stands behind it."""
        going = True
        while going:
            events = self._cut(feed)
            if events is not None:
                yield events
            else:
                places, rest, self.complete = items(feed.text, 1)
                yield self._decoded(feed.text, places)
                feed.drop(rest if self.complete else rest - 1)
                if self.complete or len(feed.text) > MAX_ITEM:
                    return
            going = feed.more()
        places, rest, self.complete = items(feed.text, 1)
        yield self._decoded(feed.text, places)
        feed.drop(rest)

    def _decoded(self, text: bytearray, places: list[tuple[int, int]]) -> list[Any]:
        if not places:
            return []
        events = self.decoder.mended(bytes(text[places[0][0]:places[-1][1]]))
        return self.decoder.one_by_one(text, places) if events is None else events

    def _cut(self, feed: _Feed) -> list[Any] | None:
        """Events up to a cut that decodes; None where none was found."""
        first = past_blank(feed.text, 0)
        for end, spelling in self._candidates(feed.text):
            events = self.decoder.between(feed.text, first, end) if end > first else None
            if events is not None:
                self._spelling = spelling
                feed.drop(end)
                return events
        return None

    def _candidates(self, text: bytearray) -> Iterator[tuple[int, bytes]]:
        """Ends of events from the last on, those spelt as before first."""
        if self._spelling and (at := text.rfind(self._spelling)) >= 0:
            yield at + 1, self._spelling
        at, attempts = len(text), 0
        for _ in range(MAX_BRACES):
            at = text.rfind(b"}", 0, at)
            if at < 0 or attempts == ATTEMPTS:
                return
            if found := _BOUNDARY.match(text, at, min(len(text), at + _BEHIND)):
                attempts += 1
                yield at + 1, found[0]


class _Feed:
    """The text at hand: more is read behind it, what is done is dropped in front; where nothing could be done, it doubles."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream, self.size, self.text = stream, size, bytearray()

    def more(self) -> bool:
        """Read on; whether there was any."""
        piece = self.stream.read(max(self.size, len(self.text)))
        self.text += piece
        return bool(piece)

    def drop(self, count: int) -> None:
        """Forget what stands in front."""
        del self.text[:count]
