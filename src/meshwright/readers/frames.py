"""The one frame of a stack that its user knows: the innermost of code that is not a library's."""

from __future__ import annotations

import re

from meshwright.readers.loose import mapping, sequence, text, whole

LIBRARIES = ("site-packages", "dist-packages", "torch/", "lib/python3", "<frozen", "<string>", "importlib")
MAX_FRAMES = 400
_BACKWARD = re.compile(r"(\w{1,60}Backward\w{0,20})::apply")


def user_frame(frames: object) -> str:
    """``name (file:line)`` of the innermost Python frame outside of libraries, else of the innermost Python frame.

    Threads of the backward pass have none: then the operation, ``AddmmBackward0 (backward pass)``. Empty where nothing says.

    >>> library = {"name": "f", "filename": "/x/site-packages/torch/nn.py", "line": 3}
    >>> user_frame([library, {"name": "g", "filename": "train.py", "line": 7}])
    'g (train.py:7)'
    """
    stack = [mapping(each) for each in sequence(frames)[:MAX_FRAMES]]
    python = [each for each in stack if text(each.get("filename")).endswith(".py")]
    own = next((each for each in python if not any(part in text(each.get("filename")) for part in LIBRARIES)), None)
    chosen = own if own is not None else python[0] if python else None
    if chosen is not None:
        return f"{text(chosen.get('name'))} ({text(chosen.get('filename'))}:{whole(chosen.get('line')) or 0})"
    for each in stack:
        name = text(each.get("name"))
        if found := _BACKWARD.search(name):
            return f"{found[1]} (backward pass)"
        if "autograd::Engine" in name:
            return "backward pass"
    return ""
