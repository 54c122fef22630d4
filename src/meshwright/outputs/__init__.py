"""The one writer of everything that the program writes for a user: whole or not at all, and nothing of the user's is lost.

What is promised, and how the journal keeps it: ``docs/outputs.md``. ``writing`` changes files, all of one call or none;
``obstacles`` says before anything is computed what would be in the way; ``recover`` puts back what a writer that was killed has
left half done. Names are imported when they are used: every start of the program asks ``recover_named``, and mostly nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.outputs.checks import files_in, obstacles
    from meshwright.outputs.named import recover_named
    from meshwright.outputs.output import Output, Written, in_folder
    from meshwright.outputs.recovery import recover
    from meshwright.outputs.seal import SEAL, sealed
    from meshwright.outputs.writer import write, writing

_HOMES = {
    "files_in": "checks", "obstacles": "checks", "recover_named": "named", "Output": "output", "Written": "output",
    "in_folder": "output", "recover": "recovery", "SEAL": "seal", "sealed": "seal", "write": "writer", "writing": "writer",
}

__all__ = [
    "SEAL", "Output", "Written", "files_in", "in_folder", "obstacles", "recover", "recover_named", "sealed", "write", "writing",
]


def __getattr__(name: str) -> object:
    """A name from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
