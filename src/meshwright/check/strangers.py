"""Files that the framework never reads: those of another one, handed over with the rest, judged by their own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.errors import InputError
from meshwright.frameworks.base import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Finding


def strangers(context: Context) -> Iterator[Finding]:
    """Each file none of whose keys the framework knows, with what its own framework says of it."""
    for path, other in context.strangers.items():
        whose = f": it is one of {other.title}" if other is not None else ""
        yield finding(
            "warning", "check.other-framework", "{title} knows no key of this file{whose}", path=path,
            title=context.framework.title, whose=whose, source=f"{context.framework.title} {context.reading.version}",
        )
        if other is not None:
            yield from _judged(context, other, path)


def _judged(context: Context, other: Framework, path: str) -> Iterator[Finding]:
    """What the file's own framework accepts of it although it is wrong."""
    text = next(document.text for document in context.reading.source.documents if document.path == path)
    try:
        reading = other.read((File(path=path, text=text),))
    except InputError:  # it was read before; what its own framework lacks to understand it is not this file's fault
        return
    for check in other.checks:
        yield from check.findings(reading, None)
