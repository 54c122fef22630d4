"""Launch scripts and profiles of the shell: their variables, their launcher, and the rules of the framework that they start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.launch import parse_launch
from meshwright.errors import Message
from meshwright.frameworks.variables import ALLOCATORS, left_over, set_twice, torn_allocator
from meshwright.lint.found import Edit, Found
from meshwright.lint.framework import framework_findings, framework_of
from meshwright.lint.rule import rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.documents.launch import LaunchDocument
    from meshwright.documents.source import Setting
    from meshwright.frameworks.variables import Habit


def script_findings(text: str, path: str) -> Iterator[Found]:
    """What is found in a script; nothing of it is run.

    Errors:  ``InputError`` where it is no script of the shell.
    """
    document = parse_launch(text, path=path)
    launch = document.shell.found
    environment = document.environment()
    for habit, setting in left_over(environment, (launch.nodes if launch is not None else None) or 1):
        yield _variable(document, habit, setting)
    if torn := torn_allocator(environment):
        yield _found("launch.allocator-names", f"{ALLOCATORS[0]} and {ALLOCATORS[1]}", path, torn[1].line)
    for name, first, last, line in set_twice(text):
        yield _found("launch.set-twice", f"{name} is set to {first} and then to {last}", path, line)
    if launch is None:
        return
    if launch.launcher == "torch.distributed.launch":
        yield _found("launch.old-launcher", launch.launcher, path, launch.command.line)
    if _TRAINS_NOT.search(document.program):
        return
    named = framework_of(tuple(document.settings()), text)
    if named is not None:
        yield from (each for each in framework_findings(named, path, text) if not each.id.endswith(_SAID))


_TRAINS_NOT = re.compile(r"generat|eval|infer|server|preprocess|convert|download|merge|msdp|(^|/)tools/|bench", re.IGNORECASE)
"""Programs that are no training, though they may take a trainer's flags."""
_SAID = (".launcher", ".set-twice", ".alloc-twice", ".nccl-debug", ".nccl-off", ".blocking", ".slow-variable", ".allocator")
"""Rules of frameworks that are said already: they are the rows and functions above, under a framework's name."""


def _variable(document: LaunchDocument, habit: Habit, setting: Setting) -> Found:
    """A variable at its place, with the bytes of its value where they stand behind its name and nowhere else."""
    word = document.shell.environment[habit.variable]
    data = document.text.encode("utf-8", "surrogatepass")
    edits: tuple[Edit, ...] = ()
    column = 1
    line = setting.line or 1
    if word is not None and word.span is not None:
        start, end = word.span
        before = data[data.rfind(b"\n", 0, start) + 1 : start]
        named = re.search(rf"(?:^|[\s;]){habit.variable}=[\"']?$".encode(), before)
        if named is not None:
            column = len(before[: named.start()].decode("utf-8", "replace")) + (2 if named.start() or before[:1].isspace() else 1)
            if habit.replacement is not None and not word.shared and "\r" not in document.text:
                edits = (Edit(start=start, end=end, text=habit.replacement),)
    rule = rules()[habit.id]
    return Found(
        id=habit.id,
        severity=habit.severity,
        message=Message(habit.id, rule.says, {"code": setting.value}),
        file=document.path,
        line=line,
        column=column,
        source=habit.source,
        edits=edits,
    )


def _found(id: str, code: str, path: str, line: int) -> Found:
    """A finding of a rule of the table."""
    rule = rules()[id]
    return Found(
        id=id, severity=rule.severity, message=Message(id, rule.says, {"code": code}), file=path, line=line or 1, source=rule.source
    )
