"""Pickles of nothing but plain values: numbers, texts, lists, tuples, dictionaries. Nothing is ever imported, built or called.

A machine of its own for the few operations that such values need (protocols 2 to 5); every other operation refuses the file. The
standard unpickler with ``find_class`` refused still reserves memory that an opcode only claims (memo places, byte strings), and
hashes nested tuples for as long as they like; here places follow in order, sizes end with the file, keys are texts or numbers.
"""

from __future__ import annotations

from struct import unpack_from
from typing import TYPE_CHECKING

from meshwright.errors import fault

if TYPE_CHECKING:
    from typing import NoReturn

MAX_CONTAINERS = 10_000_000
MAX_MEMO = 20_000_000
LONGEST_NUMBER = 16
"""Bytes of a whole number."""
_HEAD = b"\x80"
_WIDTHS = {0x6A: 4, 0x68: 1, 0x4B: 1, 0x4A: 4, 0x4D: 2, 0x47: 8, 0x71: 1, 0x72: 4, 0x80: 1, 0x95: 8}
"""Bytes that follow an operation."""
_NAMES = {
    b"c": "a class", b"\x93": "a class", b"R": "a call", b"i": "a call", b"o": "a call", b"\x81": "an object", b"\x92": "an object",
    b"b": "an object's state", b"P": "an outside object", b"Q": "an outside object", b"\x82": "an extension",
    b"\x83": "an extension", b"\x84": "an extension", b"\x97": "an outside buffer", b"\x98": "an outside buffer",
}


def looks_like_pickle(sample: bytes) -> bool:
    """Whether content begins as a pickle of protocol 2 or later does."""
    return len(sample) > 2 and sample[:1] == _HEAD and 2 <= sample[1] <= 5


def load_plain_pickle(data: bytes, where: str) -> tuple[object, bool]:
    """The value, and whether the pickle was whole; of one that breaks off, what its open lists and dictionaries hold so far.

    Errors:  ``InputError`` for what is no such pickle: classes, calls, foreign operations, sizes beyond bounds.
    """
    try:
        return _run(data, where)
    except (IndexError, TypeError, ValueError) as error:
        raise fault("pickle.malformed", "is not a pickle of plain values: {reason}", path=where, reason=_reason(error)) from None


def _reason(error: Exception) -> str:
    return "it takes what is not there" if isinstance(error, IndexError) else "its values do not go together"


def _refuse(data: bytes, at: int, where: str) -> NoReturn:
    code = data[at: at + 1]
    what = _NAMES.get(code, f"operation {code[0]:#04x}")
    raise fault("pickle.operation", "holds {what} (byte {at:,}): only plain values are read, nothing is built or called",
                path=where, what=what, at=at)


class _End(Exception):
    """The data breaks off."""


def _run(data: bytes, where: str) -> tuple[object, bool]:
    stack: list[object] = []
    marks: list[list[object]] = []
    memo: list[object] = []
    size, at, containers = len(data), 0, 0
    near = size - 9
    try:
        while True:
            if at >= near:
                _need(at + 1, size)
                _need(at + 1 + _WIDTHS.get(data[at], 0), size)
            code = data[at]
            at += 1
            if code == 0x6A:  # LONG_BINGET
                stack.append(memo[unpack_from("<I", data, at)[0]])
                at += 4
            elif code == 0x68:  # BINGET
                stack.append(memo[data[at]])
                at += 1
            elif code == 0x94:  # MEMOIZE
                _remember(memo, len(memo), stack[-1], where)
            elif code == 0x28:  # MARK
                marks.append(stack)
                stack = []
            elif code == 0x4B:  # BININT1
                stack.append(data[at])
                at += 1
            elif code in {0x5D, 0x7D, 0x29}:  # EMPTY_LIST, EMPTY_DICT, EMPTY_TUPLE
                containers += 1
                if containers > MAX_CONTAINERS:
                    raise fault("pickle.large", "holds more than {limit:,} lists and dictionaries", path=where,
                                limit=MAX_CONTAINERS)
                stack.append([] if code == 0x5D else {} if code == 0x7D else ())
            elif code == 0x75:  # SETITEMS
                items, stack = stack, marks.pop()
                _set(stack[-1], items, where)
            elif code == 0x65:  # APPENDS
                items, stack = stack, marks.pop()
                _append(stack[-1], items, where)
            elif code == 0x61:  # APPEND
                item = stack.pop()
                _append(stack[-1], [item], where)
            elif code == 0x73:  # SETITEM
                pair = stack[-2:]
                del stack[-2:]
                _set(stack[-1], pair, where)
            elif code in {0x8C, 0x58, 0x8D}:  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
                start, at = _block(data, at, {0x8C: 1, 0x58: 4, 0x8D: 8}[code])
                stack.append(data[start:at].decode("utf-8", "replace"))
            elif code == 0x8A:  # LONG1
                start, at = _block(data, at, 1)
                if at - start > LONGEST_NUMBER:
                    raise fault("pickle.number", "holds a number of {size} bytes", path=where, size=at - start)
                stack.append(int.from_bytes(data[start:at], "little", signed=True))
            elif code == 0x4A:  # BININT
                stack.append(unpack_from("<i", data, at)[0])
                at += 4
            elif code == 0x4D:  # BININT2
                stack.append(unpack_from("<H", data, at)[0])
                at += 2
            elif code == 0x47:  # BINFLOAT
                stack.append(unpack_from(">d", data, at)[0])
                at += 8
            elif code in {0x4E, 0x88, 0x89}:  # NONE, NEWTRUE, NEWFALSE
                stack.append(None if code == 0x4E else code == 0x88)
            elif code in {0x85, 0x86, 0x87}:  # TUPLE1 to TUPLE3
                number = code - 0x84
                values = tuple(stack[-number:])
                if len(values) < number:
                    raise IndexError
                stack[-number:] = [values]
                containers += 1
            elif code == 0x74:  # TUPLE
                items, stack = stack, marks.pop()
                stack.append(tuple(items))
                containers += 1
            elif code == 0x71:  # BINPUT
                _remember(memo, data[at], stack[-1], where)
                at += 1
            elif code == 0x72:  # LONG_BINPUT
                _remember(memo, unpack_from("<I", data, at)[0], stack[-1], where)
                at += 4
            elif code in {0x43, 0x42, 0x8E}:  # SHORT_BINBYTES, BINBYTES, BINBYTES8
                start, at = _block(data, at, {0x43: 1, 0x42: 4, 0x8E: 8}[code])
                stack.append(data[start:at])
            elif code == 0x30:  # POP
                stack.pop()
            elif code == 0x31:  # POP_MARK
                stack = marks.pop()
            elif code == 0x32:  # DUP
                stack.append(stack[-1])
            elif code in {0x80, 0x95}:  # PROTO, FRAME
                at += 1 if code == 0x80 else 8
            elif code == 0x2E:  # STOP
                return stack[-1], True
            else:
                _refuse(data, at - 1, where)
    except _End:
        return _so_far(stack, marks), False


def _so_far(stack: list[object], marks: list[list[object]]) -> object:
    """What is at the bottom of a machine that stopped, its open lists and dictionaries filled with what is on the stack."""
    while marks:
        items, stack = stack, marks.pop()
        if stack:
            _fill(stack[-1], items)
    if stack:
        _fill(stack[0], stack[1:])
    return stack[0] if stack else None


def _fill(target: object, items: list[object]) -> None:
    if isinstance(target, list):
        target.extend(items)
    elif isinstance(target, dict):
        if len(items) % 2 and len(items) > 1 and isinstance(items[-2], list):  # a list of one, whose item was not appended yet
            items[-2].append(items[-1])
        target.update({key: value for key, value in zip(items[::2], items[1::2], strict=False) if isinstance(key, (str, int))})


def _need(end: int, size: int) -> None:
    if end > size:
        raise _End


def _block(data: bytes, at: int, width: int) -> tuple[int, int]:
    """Where a text or a number begins and ends whose length stands in so many bytes."""
    _need(at + width, len(data))
    start = at + width
    end = start + int.from_bytes(data[at:start], "little")
    _need(end, len(data))
    return start, end


def _remember(memo: list[object], place: int, value: object, where: str) -> None:
    """Put a value at a place; places follow in order, so that nobody claims memory with a number."""
    if place == len(memo) and place < MAX_MEMO:
        memo.append(value)
    elif place < len(memo):
        memo[place] = value
    else:
        raise fault("pickle.memo", "puts a value at place {place:,}, far beyond the {size:,} that it has", path=where, place=place,
                    size=len(memo))


def _append(target: object, items: list[object], where: str) -> None:
    if not isinstance(target, list):
        raise fault("pickle.malformed", "is not a pickle of plain values: {reason}", path=where, reason="it appends to no list")
    target.extend(items)


def _set(target: object, items: list[object], where: str) -> None:
    if not isinstance(target, dict) or len(items) % 2:
        raise fault("pickle.malformed", "is not a pickle of plain values: {reason}", path=where,
                    reason="it sets items of no dictionary")
    for index in range(0, len(items), 2):
        key = items[index]
        if not isinstance(key, (str, int, float)) and key is not None:
            raise fault("pickle.key", "has a key that is neither a text nor a number", path=where)
        target[key] = items[index + 1]
