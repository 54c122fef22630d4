"""The table of rules (``rules/*.yaml``): what each looks at, why, who says so, what triggers it and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal

from meshwright.frameworks.variables import habits
from meshwright.readers.shipped import load_shipped

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Severity
    from meshwright.frameworks.variables import Habit, Purpose

Look = Literal["Python", "environment", "DeepSpeed JSON", "accelerate YAML", "MindSpore YAML", "launch script", "any file"]
_STEP = "import torch\nfor batch in loader:\n    loss = model(batch)\n    loss.backward()\n    optimizer.step()\n"
"""What stands around the example of a rule about the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule."""

    id: str
    severity: Severity
    purpose: Purpose
    looks_at: Look
    says: str
    """The message; ``{code}`` is what stands there."""
    why: str
    source: str
    bad: str
    """A file that triggers it; blank for rules about files that cannot be read."""
    good: str
    """A file that does not."""
    fix: str = ""
    """What ``--fix`` writes; blank: it is for a person to mend."""
    default: bool = True
    """Whether it is asked where nobody named a purpose."""
    when: Mapping[str, Any] = field(default_factory=dict)
    """For rules that are data alone: which call, key or variable is meant (``python.calls``, ``configurations``)."""


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its identifier, in the order of the table."""
    found: dict[str, Rule] = {}
    for path in sorted(Path(__file__).parent.joinpath("rules").glob("*.yaml")):
        loaded = load_shipped(path)
        assert isinstance(loaded, list)
        for row in loaded:
            rule = _rule(row)
            assert rule.id not in found, f"{rule.id} stands twice"
            found[rule.id] = rule
    found |= {habit.id: _of_variable(habit) for habit in habits()}
    return found


def _rule(row: Mapping[str, Any]) -> Rule:
    """A row of a file; examples of rules about the step are put into one."""
    given = {"looks_at": "Python", **row}
    if given.pop("step", False) or given.get("when", {}).get("in") == "step":
        given.update({each: _STEP + indent(given[each], "    ") for each in ("bad", "good")})
    return Rule(**given)


def _of_variable(habit: Habit) -> Rule:
    """A variable of the launch as a rule (``frameworks.variables``)."""
    nodes = "torchrun --nnodes 2 train.py\n" if habit.across_nodes else "python train.py --lr 1\n"
    return Rule(
        id=habit.id,
        severity=habit.severity,
        purpose=habit.purpose,
        looks_at="environment",
        says=f"{habit.variable}={{code}}: {habit.words}",
        why=f"{habit.variable}: {habit.words}.",
        source=habit.source,
        bad=f"export {habit.variable}='{habit.triggers}'\n{nodes}",
        good=f"export {habit.variable}='{habit.passes}'\n{nodes}",
        fix=f"{habit.variable}={habit.replacement}" if habit.replacement is not None else "",
    )
