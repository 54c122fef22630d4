"""The one frame of a stack that its user knows: the innermost of code that is not a library's."""

from __future__ import annotations

import re

from meshwright.readers.loose import mapping, sequence, text, whole

LIBRARIES = ("site-packages", "dist-packages", "torch/", "lib/python3", "<frozen", "<string>", "importlib")
MAX_FRAMES = 400
OWN, LIBRARY, BACKWARD, ENGINE, OTHER = range(5)
"""Kinds of frames, those that tell most first."""
_BACKWARD = re.compile(r"(\w{1,60}Backward\w{0,20})::apply")

Seen = dict[int, tuple[int, str]]
"""Frames that were looked at, by identity: stacks of one document share their frames."""


def user_frame(frames: object, seen: Seen | None = None) -> str:
    """``name (file:line)`` of the innermost Python frame outside of libraries, else of the innermost Python frame.

    Threads of the backward pass have none: then the operation, ``AddmmBackward0 (backward pass)``. Empty where nothing says.

    >>> library = {"name": "f", "filename": "/x/site-packages/torch/nn.py", "line": 3}
    >>> user_frame([library, {"name": "g", "filename": "train.py", "line": 7}])
    'g (train.py:7)'
    """
    seen = {} if seen is None else seen
    best = (OTHER, "")
    for frame in sequence(frames)[:MAX_FRAMES]:
        found = seen.get(id(frame))
        if found is None:
            found = seen[id(frame)] = _told(frame)
        if found[0] < best[0]:
            best = found
            if best[0] == OWN:
                break
    return best[1]


def _told(frame: object) -> tuple[int, str]:
    """What kind of frame it is, and how it is shown."""
    each = mapping(frame)
    name, file = text(each.get("name")), text(each.get("filename"))
    if file.endswith(".py"):
        shown = f"{name} ({file}:{whole(each.get('line')) or 0})"
        return LIBRARY if any(part in file for part in LIBRARIES) else OWN, shown
    if found := _BACKWARD.search(name):
        return BACKWARD, f"{found[1]} (backward pass)"
    return (ENGINE, "backward pass") if "autograd::Engine" in name else (OTHER, "")
