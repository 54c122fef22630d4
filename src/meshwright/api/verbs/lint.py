"""``lint``: scripts, environments and configurations against the table of rules."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, one_of
from meshwright.api.request import Answer, Progress, Request, ticking

if TYPE_CHECKING:
    from meshwright.lint import Linted, Mended
    from meshwright.lint.explained import Explained


class LintRequest(Request, frozen=True, kw_only=True):
    """Files and folders, what they are looked at for, and what is to be done about it."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(
            name="paths",
            kind="arguments",
            metavar="PATH...",
            in_file=False,
            help="Files or folders: Python, notebooks, shell, configurations of DeepSpeed, accelerate and MindSpore.",
        ),
        Field(
            name="purpose",
            parse=one_of("speed", "memory"),
            metavar="speed|memory",
            panel="Rules",
            in_file=False,
            help="Only rules about this; an analysis of memory wants some switches the other way [default: both].",
        ),
        Field(
            name="select",
            kind="many",
            metavar="IDS",
            panel="Rules",
            in_file=False,
            help="Only these rules or groups of rules, with commas or repeated: step, environment.nccl-debug.",
        ),
        Field(
            name="explain",
            metavar="ID",
            panel="Rules",
            in_file=False,
            help="Print one rule: why, who says so, what triggers it and what does not.",
        ),
        Field(
            name="fix",
            kind="flag",
            panel="Changes",
            in_file=False,
            help="Mend what is safe to mend; everything else keeps its bytes.",
        ),
        Field(name="diff", kind="flag", panel="Changes", in_file=False, help="Show what --fix would change, and change nothing."),
        Field(name="sarif", metavar="FILE", panel="Output", in_file=False, help="Write the findings as SARIF 2.1.0, too."),
        Field(name="force", kind="flag", panel="Output", in_file=False, help="Replace the file of --sarif where it exists."),
    )

    paths: Sequence[str | Path] = ()
    purpose: str | None = None
    select: Sequence[str] = ()
    explain: str | None = None
    fix: bool = False
    diff: bool = False
    sarif: str | Path | None = None
    force: bool = False


class LintAnswer(Answer, frozen=True, kw_only=True):
    """The findings, what was mended or would be; or one rule, explained."""

    linted: Linted | None = None
    explained: Explained | None = None
    written: tuple[str, ...] = ()
    """Files that were changed."""
    saved: str = ""
    """The SARIF that was written."""
    diff: bool = False

    @property
    def ok(self) -> bool:
        """Whether none of the findings is an error."""
        return self.linted is None or self.linted.ok

    @property
    def changes(self) -> str:
        """What ``--fix`` changes, as a unified diff."""
        return "".join(map(_diff, self.linted.mended)) if self.linted is not None and self.diff else ""

    def to_json(self) -> dict[str, Any]:
        """The document of ``lint --json``."""
        from meshwright.api.views.lint import lint_view, rule_view

        if self.linted is None:
            assert self.explained is not None, "an answer has findings or a rule"
            return rule_view(self.explained)
        return lint_view(self.linted, diff=self.changes if self.diff else None, written=self.written, sarif=self.saved)


@door
def lint(request: LintRequest, *, progress: Progress | None = None) -> LintAnswer:
    """Look at files; mend them where that was asked for.

    Errors:  ``InputError`` with every fault of the request, where a path is not there, and where a file that is to be changed
    cannot be.
    """
    from meshwright.lint import Wanted
    from meshwright.lint import lint as looked
    from meshwright.lint.explained import explained, known
    from meshwright.outputs import Output, obstacles, write

    faults = Faults()
    values = request.read(faults)
    if "explain" in values:
        faults.check()
        return LintAnswer(explained=explained(values["explain"]))
    if not values["paths"] and "paths" not in faults.failed:
        faults.add("lint.paths", "PATH is missing: files or folders that are to be looked at")
    select = tuple(word.strip() for each in values["select"] for word in each.split(",") if word.strip())
    for word in select:
        with faults.at("select"):
            known(word)
    if "sarif" in values:
        faults.note(obstacles([str(values["sarif"])], inputs=values["paths"], force=values["force"]))
    faults.check()
    linted = looked(
        values["paths"],
        Wanted(purpose=values.get("purpose"), select=select),
        mend="show" if values["diff"] else "write" if values["fix"] else "",
        progress=ticking(progress, "files"),
    )
    written: list[str] = []
    if values["fix"] and not values["diff"] and linted.mended:
        written = write([Output(path=each.path, text=each.after, read=each.before) for each in linted.mended])
    if "sarif" in values:
        from meshwright.lint.sarif import sarif

        document = json.dumps(sarif(linted.findings), indent=1).replace("\x7f", r"\u007f") + "\n"
        write([Output(path=str(values["sarif"]), text=document)], force=values["force"], inputs=values["paths"])
    return LintAnswer(linted=linted, written=tuple(written), saved=str(values.get("sarif", "")), diff=values["diff"])


def _diff(each: Mended) -> str:
    """The change of one file."""
    lines = difflib.unified_diff(
        each.before.splitlines(keepends=True), each.after.splitlines(keepends=True), f"a/{each.path}", f"b/{each.path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
