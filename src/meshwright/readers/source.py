"""A file of a run, hostile until parsed: decompressed within bounds, and a sample of it to tell its format by content."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

from meshwright.errors import fault
from meshwright.readers.safe import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

SAMPLE = 1 << 20
"""Bytes of the beginning that a sample holds."""
PLACE = 1 << 18
"""Bytes of the end and of each place between."""
PLACES = 14
"""Places between the beginning and the end that a sample of a large file holds."""
MAX_DECOMPRESSED_BYTES = 64 * 10**9
MAX_RATIO = 250
"""What a compressed trace may swell to, once past a hundred megabytes: traces reach 40, bombs reach 1,000."""
_SMALL = 100 * 10**6
_SWELLS = 10
"""What a compressed log grows to, roughly."""
_EXCERPT = 1 << 17
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """One file: its path, and its name as messages show it."""

    path: Path
    name: str = ""
    broken: list[str] = field(default_factory=list, compare=False)
    """Why reading stopped before the end, where it did: a truncated archive."""

    @property
    def shown(self) -> str:
        """The name for places and messages."""
        return self.name or str(self.path)

    @cached_property
    def compressed(self) -> bool:
        """Whether its first bytes are those of gzip."""
        with open_regular(self.path) as stream:
            return stream.read(2) == _GZIP

    @property
    def size_bytes(self) -> int:
        """About how much there is to read; of an archive a guess."""
        with suppress(OSError):
            return self.path.stat().st_size * (_SWELLS if self.compressed else 1)
        return 0

    @property
    def written_s(self) -> float | None:
        """When it was written last, in seconds since 1970."""
        with suppress(OSError):
            return self.path.stat().st_mtime
        return None

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Its bytes from the beginning, decompressed; a truncated archive ends early and is noted in ``broken``.

        Errors:  ``InputError`` for a file that cannot be read, and for an archive that swells beyond bounds.
        """
        with open_regular(self.path) as stream:
            if not self.compressed:
                yield stream
                return
            with gzip.GzipFile(fileobj=stream) as inner:
                yield io.BufferedReader(_Bounded(inner, stream, self), 1 << 20)

    @cached_property
    def sample(self) -> bytes:
        """The beginning; of an uncompressed file the end as well and places between: to see what is in it, not to read it."""
        with self.open() as stream:
            head = stream.read(SAMPLE)
            if self.compressed:
                return head
            size = stream.seek(0, io.SEEK_END)
            pieces = [head]
            step = max(PLACE, (size - SAMPLE) // (PLACES + 1))
            for at in range(SAMPLE, size, step):
                stream.seek(min(at, max(0, size - PLACE)))
                pieces.append(stream.read(PLACE))
            return b"\n".join(pieces)

    @cached_property
    def excerpt(self) -> bytes:
        """A little of the sample, from all its places: what words are common in the file."""
        return b"".join(self.sample[at: at + _EXCERPT] for at in range(0, len(self.sample), PLACE))


class _Bounded(io.RawIOBase):
    """A decompressed stream that refuses to swell without end and ends where the archive breaks."""

    def __init__(self, inner: gzip.GzipFile, outer: IO[bytes], source: Source) -> None:
        self.inner, self.outer, self.source, self.given = inner, outer, source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        try:
            content = self.inner.read1(len(view))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.source.broken.append(str(error))
            return 0
        self.given += len(content)
        taken = 1
        with suppress(OSError, ValueError):
            taken = max(1, self.outer.tell())
        if self.given > MAX_DECOMPRESSED_BYTES or (self.given > _SMALL and self.given > MAX_RATIO * taken):
            raise fault("archive.bomb", "swells to more than {size:,} bytes when decompressed: not read", path=self.source.shown,
                        size=self.given)
        view[: len(content)] = content
        return len(content)
