"""The one writer of everything that the program writes for a user: whole or not at all, and nothing of the user's is lost.

What is promised, and how the journal keeps it: ``docs/outputs.md``. ``writing`` changes files, all of one call or none;
``obstacles`` says before anything is computed what would be in the way; ``recover`` puts back what a writer that was killed has
left half done.
"""

from meshwright.outputs.checks import obstacles
from meshwright.outputs.output import Output, Written, in_folder
from meshwright.outputs.recovery import recover, recover_named
from meshwright.outputs.seal import SEAL, sealed
from meshwright.outputs.writer import write, writing

__all__ = ["SEAL", "Output", "Written", "in_folder", "obstacles", "recover", "recover_named", "sealed", "write", "writing"]
