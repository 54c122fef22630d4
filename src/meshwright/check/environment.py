"""Variables of the launch that cost speed wherever they stand; what one framework needs is its own rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.frameworks.variables import ALLOCATORS, WORDS, left_over, torn_allocator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.frameworks.settings import Finding


def environment(context: Context) -> Iterator[Finding]:
    """Left-overs of debugging, and an allocator that is told two things."""
    source = context.reading.source
    nodes = source.nodes or (context.case.cluster.num_nodes if context.case is not None else 1)
    for habit, setting in left_over(source.environment, nodes):
        yield finding(
            habit.severity, "environment.habit", WORDS, path=setting.place, name=habit.variable, words=habit.words,
            value=setting.value, expected=habit.expected, source=habit.source,
        )
    if torn := torn_allocator(source.environment):
        old, new = torn
        yield finding(
            "warning", "environment.allocator", "{old} and {new} say different things; only one of them is read",
            path=new.place, value=old.value, expected=new.value, old=ALLOCATORS[0], new=ALLOCATORS[1],
            source="PyTorch documentation, CUDA semantics",
        )
