"""The programs that launch scripts of the Megatron family start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.documents.source import Source

OWN_PROGRAMS = frozenset({
    "pretrain_gpt.py", "pretrain_bert.py", "pretrain_t5.py", "pretrain_mamba.py", "pretrain_hybrid.py", "posttrain_gpt.py",
})
"""Programs of the Megatron family whose flags are all in the tables."""


def other_program(source: Source) -> str:
    """A program that may add flags of its own to Megatron's, as its entry points let it."""
    name = source.program.rpartition("/")[2]
    return source.program if name.endswith(".py") and name not in OWN_PROGRAMS else ""
