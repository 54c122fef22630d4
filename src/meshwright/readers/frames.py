"""The one frame of a stack that its user knows: the innermost of code that is not a library's."""

from __future__ import annotations

from meshwright.readers.loose import mapping, sequence, text, whole

LIBRARIES = ("site-packages", "dist-packages", "torch/", "lib/python3", "<frozen", "<string>", "importlib")
MAX_FRAMES = 400


def user_frame(frames: object) -> str:
    """``name (file:line)`` of the innermost Python frame outside of libraries, else of the innermost Python frame, else empty.

    >>> library = {"name": "f", "filename": "/x/site-packages/torch/nn.py", "line": 3}
    >>> user_frame([library, {"name": "g", "filename": "train.py", "line": 7}])
    'g (train.py:7)'
    """
    python = [each for frame in sequence(frames)[:MAX_FRAMES] if text((each := mapping(frame)).get("filename")).endswith(".py")]
    own = next((each for each in python if not any(part in text(each.get("filename")) for part in LIBRARIES)), None)
    chosen = own if own is not None else python[0] if python else None
    return "" if chosen is None else f"{text(chosen.get('name'))} ({text(chosen.get('filename'))}:{whole(chosen.get('line')) or 0})"
