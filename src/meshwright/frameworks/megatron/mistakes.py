"""Everything that is found in a user's files before Megatron-LM finds it, or although it never does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.megatron.deepspeed_mistakes import CHECKS as DEEPSPEED
from meshwright.frameworks.megatron.flag_mistakes import CHECKS as FLAGS
from meshwright.frameworks.megatron.launch_mistakes import CHECKS as LAUNCH
from meshwright.frameworks.megatron.sharding_mistakes import CHECKS as SHARDING

if TYPE_CHECKING:
    from meshwright.frameworks.base import Check
    from meshwright.frameworks.settings import Severity

CHECKS: tuple[Check, ...] = (*FLAGS, *SHARDING, *DEEPSPEED, *LAUNCH)


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """argparse without abbreviations stops at a flag that it does not know; other files are none of its own."""
    return ("error", "unrecognized arguments: {key}") if key.startswith("-") else None
