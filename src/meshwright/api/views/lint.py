"""JSON of ``lint``: the document of the contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.lint import Found, Linted
    from meshwright.lint.explained import Explained


def lint_view(linted: Linted, *, diff: str | None, written: Sequence[str], sarif: str) -> dict[str, Any]:
    """``lint --json``: the contract's keys, and what was mended."""
    return {
        "ok": linted.ok, "findings": [_finding(each) for each in linted.findings], "files": linted.files, "lines": linted.lines,
        "mended": [each.path for each in linted.mended], "written": list(written), "diff": diff, "sarif": sarif or None,
    }


def rule_view(rule: Explained) -> dict[str, Any]:
    """``lint --explain ID --json``: one rule, beside no findings."""
    return {"ok": True, "findings": [], "rule": asdict(rule)}


def _finding(each: Found) -> dict[str, Any]:
    """One finding; ``cell`` is that of a notebook, in which lines count from 1."""
    return {
        "id": each.id, "severity": each.severity, "message": each.message.words, "file": each.file, "line": each.line,
        "column": each.column, "source": each.source, "fix": bool(each.edits), "cell": each.cell or None,
    }
