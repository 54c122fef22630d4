"""What may be a name: of a model, a device, a cluster, a run, or a path.

Names are written into scripts, settings and pictures. One that holds what nobody sees is refused where it comes in, and never
changed in silence; quoting (``documents.quoting``) takes care of all others.
"""

from __future__ import annotations

from meshwright.errors import InputError, Message
from meshwright.text import hidden, quoted


def name_fault(name: str, path: str) -> Message | None:
    """What is wrong with a name that stands at ``path`` (``file: key``), or None.

    >>> print(name_fault("llama\\ntouch x", "config.json: _name_or_path"))
    config.json: _name_or_path: 'llama\\ntouch x' holds a line break (\\n): one line of characters that can be seen is taken
    """
    mark = hidden(name)
    if not mark:
        return None
    values = {"name": quoted(name), "what": _what(mark), "mark": mark}
    return Message("name.hidden", "{name} holds {what} ({mark}): one line of characters that can be seen is taken", values, path)


def require_name(name: str, path: str) -> str:
    """The name itself.

    Errors: ``InputError`` where it holds what nobody sees.
    """
    if wrong := name_fault(name, path):
        raise InputError(wrong)
    return name


def _what(mark: str) -> str:
    """An escaped character in words."""
    known = {r"\n": "a line break", r"\r": "a line break", r"\t": "a tab", r"\u2028": "a line break", r"\u2029": "a line break"}
    if mark in known:
        return known[mark]
    if mark.startswith(r"\ud"):
        return "half a character" if mark < r"\udc80" or mark > r"\udcff" else "a byte that is not UTF-8"
    return "a mark that turns the direction of writing" if mark.startswith(r"\u") else "a control character"
