"""What becomes of a file: its bytes, and what lies around it."""

from __future__ import annotations

import gzip
import os
import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

LONGEST = 200_000
"""Bytes of a file that a case takes."""
SECRETS = ("gpu-a17", "10.11.12.13", "jdoe", "hf_abcdefghij0123", "r7i7n3")
LINES = (
    b"[gpu-a17] saving to /lustre/jdoe/run1/ckpt from 10.11.12.13:4242 HF_TOKEN=hf_abcdefghij0123 rank 0: CUDA out of memory",
    b"r7i7n3:4035:4411 [0] NCCL WARN NET/IB : Got completion from peer 10.11.12.13<4242> with status=12 vendor err 129",
)
NUMBER = re.compile(rb"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
NUMBERS = (
    *b"0 0.0 -1 -0.5 nan NaN inf -inf Infinity 1e400 1e308 1e-320 1e19 18446744073709551615 9223372036854775808".split(),
    *b"0x7fffffff 111111111111 100000000 true null [] {} 1,000 1_0 1e5 2147483648 0.0000001 1000000 7 3".split(),
    b"9" * 30, b"9" * 5000, b"", b'"x"', b"\xd9\xa1",
)
BYTES = (*(bytes([each]) for each in b'\0\r\x7f{}]"|:='), b"\x1b[31m", b"\x1b]0;\x07",
         b"\x85", b"\xff\xfe", b"\xe2\x80\xae", b"\\u0000", b"\\ud800")
Spoil = Callable[[random.Random, bytes], bytes]


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randint(0, len(content))]


def behead(rng: random.Random, content: bytes) -> bytes:
    return content[rng.randint(0, len(content)):]


def flip(rng: random.Random, content: bytes) -> bytes:
    spoiled = bytearray(content)
    for _ in range(rng.choice((1, 10, 200)) if content else 0):
        spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


def lines(rng: random.Random, content: bytes) -> bytes:
    """Left out, said again, in another order."""
    rows = content.split(b"\n")
    for _ in range(rng.choice((1, 5, 50))):
        at, other = rng.randrange(len(rows)), rng.randrange(len(rows))
        match rng.randrange(3):
            case 0 if len(rows) > 1:
                del rows[at]
            case 1:
                rows.insert(other, rows[at])
            case _:
                rows[at], rows[other] = rows[other], rows[at]
    return b"\n".join(rows)


def insert(rng: random.Random, content: bytes) -> bytes:
    for _ in range(rng.choice((1, 5, 100))):
        at = rng.randint(0, len(content))
        content = content[:at] + rng.choice(BYTES) + content[at:]
    return content


def numbers(rng: random.Random, content: bytes) -> bytes:
    """Some figures are others."""
    share, fixed = rng.choice((0.002, 0.02, 0.3, 1.0)), rng.choice((None, *NUMBERS))

    def other(found: re.Match[bytes]) -> bytes:
        if rng.random() >= share:
            return found[0]
        return rng.choice(NUMBERS) if fixed is None else fixed

    return NUMBER.sub(other, content)


def signed(rng: random.Random, content: bytes) -> bytes:
    """Some figures are their negatives, or scaled."""
    share, scale = rng.choice((0.02, 0.3, 1.0)), rng.choice((-1, 0, 1e3, 1e-3, 1e9, 1e-9, 1e30))

    def other(found: re.Match[bytes]) -> bytes:
        return f"{float(found[0]) * scale:g}".encode() if rng.random() < share and len(found[0]) < 20 else found[0]

    return NUMBER.sub(other, content)


def one_key(rng: random.Random, content: bytes) -> bytes:
    """One word's figure is another, wherever it stands: all step times are negative, all world sizes zero."""
    keys = re.findall(rb"([A-Za-z_\"][\w \"()/]{1,40}?\s*[=:.]+ ?\(?)(\d+(?:\.\d+)?)", content[:LONGEST])
    if not keys:
        return content
    key, value = rng.choice(keys)[0], rng.choice(NUMBERS)
    return re.sub(re.escape(key) + rb"\d+(?:\.\d+)?", lambda _: key + value, content)


def names(rng: random.Random, content: bytes) -> bytes:
    """A word is empty, very long or not seen."""
    words = re.findall(rb'"([A-Za-z][\w /.:#]{1,60})"', content[:LONGEST]) or re.findall(rb"[A-Za-z]{3,40}", content[:LONGEST])
    if not words:
        return content
    other = rng.choice((b"", b"x" * 100_000, b"\x00", b"\\u202e", b"__class__", b"%s{0}{x!r}[red]"))
    return content.replace(rng.choice(words), other, 50)


def long_line(rng: random.Random, content: bytes) -> bytes:
    at = rng.randint(0, len(content))
    piece = rng.choice((b"x", b"9", b" ", b"[", b'{"a":', b"\x00", b"| x: 1 ", b"a b=", b".", b"-"))
    return content[:at] + piece * (10_000_000 // len(piece)) + content[at:]


def deep(rng: random.Random, content: bytes) -> bytes:
    at = rng.choice([found.end() for found in re.finditer(rb"[:,\[]", content[:LONGEST])] or [0])
    return content[:at] + rng.choice((b"[", b'{"a":')) * rng.choice((100, 3000, 100_000)) + content[at:]


def secrets(rng: random.Random, content: bytes) -> bytes:
    rows = content.split(b"\n")
    for _ in range(5):
        rows.insert(rng.randint(0, len(rows)), rng.choice(LINES))
    return b"\n".join(rows)


def again(rng: random.Random, content: bytes) -> bytes:
    return content * rng.choice((2, 3))


SPOILS: tuple[Spoil, ...] = (
    cut, behead, flip, lines, insert, numbers, numbers, signed, one_key, one_key, one_key, names, long_line, deep, secrets, again,
)


def spoiled(rng: random.Random, content: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The content after one to three spoils, and which these were; secrets come last, so that nothing hides what they are."""
    chosen = tuple(sorted((rng.choice(SPOILS) for _ in range(rng.choice((1, 1, 1, 2, 3)))), key=lambda each: each is secrets))
    for each in chosen:
        content = each(rng, content)
    return content, tuple(each.__name__ for each in chosen)


@lru_cache
def bomb(piece: bytes) -> bytes:
    """A hundred megabytes and more in a hundred kilobytes."""
    return gzip.compress(piece * (120_000_000 // len(piece)))


DAMAGED = "archive with other bits"


def laid(rng: random.Random, directory: Path, name: str, content: bytes, texts: Mapping[str, bytes]) -> tuple[list[Path], str]:
    """The paths that are asked of: the file alone, packed, or among what should not be beside it."""
    path = directory / rng.choice((*[Path(name).name] * 9, "a\nb.log", "x" * 200, "\u202egol.nur", "-rf", "[red]x"))
    path.write_bytes(content)
    match rng.randrange(14):
        case 0:
            path.write_bytes(cut(rng, gzip.compress(content, 1)))
            return [path], "cut archive"
        case 1:
            path.write_bytes(flip(rng, gzip.compress(content, 1)))
            return [path], DAMAGED
        case 2:
            path.write_bytes(gzip.compress(content) + bomb(rng.choice((b"\0", b"1 ", b"[", b"x"))))
            return [path], "bomb"
        case 3:
            for each in range(8):
                (directory / f"copy{each}").write_bytes(content)
            return [directory], "copies"
        case 4 | 5:
            for each, other in enumerate(rng.sample(sorted(texts), min(4, len(texts)))):
                (directory / f"other{each}").write_bytes(texts[other])
            return [directory], "several families"
        case 6:
            (directory / "loop").symlink_to(directory)
            (directory / "self").symlink_to(directory / "self")
            (directory / "nowhere").symlink_to(directory / "nothing")
            os.mkfifo(directory / "fifo")
            (directory / "empty").touch()
            (directory / "closed").touch(mode=0)
            return [directory], "special files"
        case 7:
            return [path, path, directory], "twice named"
    return [path], "alone"
