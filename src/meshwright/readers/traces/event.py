"""One event of a Chrome trace, as far as anybody asks, and lists of them decoded: typed at once, or one by one where that fails."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from meshwright.readers.loose import MOST

_CONTROL = bytes(range(32)) + bytes([127])
_BLANKED = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))
_ESCAPE = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_NOT_A_NUMBER = re.compile(rb'(?<=[:,\[\s])([-+]?(?:NaN|nan|Infinity|inf))(?=\s*[,}\]])')


class Args(msgspec.Struct, gc=False):
    """What events of devices, launches and collectives say beside their times."""

    correlation: int = -1
    device: int = -1
    external: int = msgspec.field(default=-1, name="External id")
    external_old: int = msgspec.field(default=-1, name="external id")
    collective: str = msgspec.field(default="", name="Collective name")
    elements_in: int = msgspec.field(default=0, name="In msg nelems")
    elements_out: int = msgspec.field(default=0, name="Out msg nelems")
    group_size: int = msgspec.field(default=0, name="Group size")
    dtype: str = ""
    group: str = msgspec.field(default="", name="Process Group Name")
    group_says: str = msgspec.field(default="", name="Process Group Description")
    group_ranks: str = msgspec.field(default="", name="Process Group Ranks")
    sequence: int = msgspec.field(default=-1, name="Seq")


class Event(msgspec.Struct, gc=False):
    """One event; ``ts`` and ``dur`` in microseconds, text where a profiler writes more digits than a float holds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float | str = 0.0
    dur: float | str = 0.0
    args: Args | None = None


class Named(msgspec.Struct, gc=False):
    """The name that a process or a thread is given."""

    name: str = ""


class PlacedEvent(msgspec.Struct, gc=False):
    """One event told by its process and thread instead of a category, as profilers of Ascend write them."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    id: int | str = 0
    pid: int | str = 0
    tid: int | str = 0
    ts: float | str = 0.0
    dur: float | str = 0.0
    args: Named | None = None


@dataclass(slots=True)
class Wrong:
    """What had to be mended or left out while decoding."""

    mended: int = 0
    """Lists with control characters, bytes that are no UTF-8, wrong escapes, or numbers that JSON does not have."""
    skipped: int = 0
    """Events that could not be understood."""


class Decoder:
    """Decodes inner text of a list of events."""

    def __init__(self, kind: Any = Event) -> None:
        """``kind``: ``Event`` or ``PlacedEvent``."""
        self.kind, self.wrong = kind, Wrong()
        self._many: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[kind])
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def between(self, text: bytearray, first: int, last: int) -> list[Any] | None:
        """Events between two places, on which brackets are put for the while: a large text is not copied.

        None where what stands between is not whole items: then it was cut in a wrong place, or is damaged.
        """
        there = text[first], text[last]
        text[first], text[last] = b"[]"
        with memoryview(text) as view, view[first:last + 1] as inner:
            events = self._decoded(inner)
        text[first], text[last] = there
        return self.mended(bytes(text[first + 1:last])) if events is None else events

    def mended(self, text: bytes) -> list[Any] | None:
        """Events of whole items as they stand, or after what profilers are known to get wrong was mended; None where neither is."""
        events = self._decoded(b"[" + text + b"]")
        if events is None:
            events = self._decoded(b"[" + _mended(text) + b"]")
            self.wrong.mended += events is not None
        return events

    def _decoded(self, text: bytes | memoryview) -> list[Any] | None:
        try:
            return self._many.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def one_by_one(self, text: bytes | bytearray, places: list[tuple[int, int]]) -> list[Any]:
        """Events at known places; what cannot be understood is left out and counted."""
        return [event for start, end in places if (event := self._single(bytes(text[start:end]))) is not None]

    def _single(self, text: bytes) -> Any:
        for attempt in (text, _mended(text)):
            try:
                return self._one.decode(attempt)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
        try:
            found = msgspec.json.decode(_mended(text))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = None
        event = _coerced(found, self.kind) if isinstance(found, dict) else None
        self.wrong.skipped += event is None
        return event


def _coerced(found: dict[str, Any], kind: Any) -> Any:
    """An event whose values are of other types than they should be, as far as they can be understood."""
    given, plain = found.get("args"), {key: value for key, value in found.items() if value is not None}
    inner = {key: value for key, value in given.items() if isinstance(value, (str, int))} if isinstance(given, dict) else None
    for args in (inner, None):
        try:
            return msgspec.convert({**plain, "args": args}, kind, strict=False)
        except (msgspec.MsgspecError, RecursionError):
            continue
    return None


def _mended(text: bytes) -> bytes:
    plain = text.translate(_BLANKED)
    plain = _NOT_A_NUMBER.sub(b"null", _ESCAPE.sub(lambda found: found[0] if found[1] else rb"\\", plain))
    return plain.decode("utf-8", "replace").encode("utf-8", "replace")


def microseconds(value: float | str) -> float:
    """A time or a duration as a number; not a number where it is none, or longer than anything."""
    try:
        found = float(value)
    except ValueError:
        return math.nan
    return found if abs(found) <= MOST else math.nan

