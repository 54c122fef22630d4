"""docs/mutants.md: which mutants were tried, and which the tests did not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from meshwright.documents.quoting import markdown_code
from meshwright.words import percent

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutants.md"
EQUIVALENT = Path(__file__).parent / "equivalent.yaml"
HEAD = """\
# What the tests notice

One line of a source is changed in a plausible way (factor, sign, index, comparison, condition, extreme, one more) in a
fork of the process (`forked.py`) and the tests of its room are run there until one fails (`benchmarks/mutants/rooms.yaml` says
which); what survives is tried in a copy of the tree, and by every other test that was seen to execute the line (`--see`, once).
`python -m benchmarks.mutants --number N --seed S` draws in turn from every room, `--known` takes the list of slips that survived
once, `--write` renews this page. Results are kept, so that a run goes on where it was. First sight is what the tests noticed that
were there when the mutants were drawn; later ones were written for what had survived.
"""
TABLE = ("| where | what | the line | becomes | seen by |", "| --- | --- | --- | --- | --- |")


def page(drawn: list[dict[str, Any]], known: list[dict[str, Any]]) -> str:
    """The page."""
    reasons = {each["key"]: each["reason"] for each in yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []}
    lines = [HEAD]
    for title, found in (("Drawn", drawn), ("Survivors of old", known)):
        killed = sum(each["killed"] for each in found)
        same = sum(not each["killed"] and each["key"] in reasons for each in found)
        share = killed / max(1, len(found) - same)
        later = sum(each["killed"] and each.get("later", False) for each in found)
        counted = f"{killed} of {len(found)} killed, {later} of them by tests that were written for it; {same} change nothing that "
        counted += f"can be seen: {percent(share, 0)} of the others."
        lines += [f"## {title}", "", counted, "", *_sets(found), *TABLE]
        lines += [_row(each, reasons) for each in sorted(found, key=lambda each: (each["path"], each["line"]))]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _sets(found: list[dict[str, Any]]) -> list[str]:
    """What each drawing came to at first sight, and comes to now."""
    names = dict.fromkeys(each["set"] for each in found)
    lines = ["| drawn with | mutants | killed at first sight | killed now |", "| --- | --- | --- | --- |"]
    for name in names:
        own = [each for each in found if each["set"] == name]
        now, first = (sum(each["killed"] and (later or not each.get("later")) for each in own) for later in (True, False))
        lines.append(f"| {name} | {len(own)} | {first} ({percent(first / len(own), 0)}) | {now} ({percent(now / len(own), 0)}) |")
    return [*lines, ""] if len(names) > 1 else []


def _row(each: dict[str, Any], reasons: dict[str, str]) -> str:
    reason = f"nothing to see: {reasons[each['key']]}" if each["key"] in reasons else "**no test**"
    seen = _test(each["by"]) + (" (new)" if each.get("later") else "") if each["killed"] else reason
    before, after = (markdown_code(each[name][:110]) for name in ("before", "after"))
    return f"| {each['path']}:{each['line']} | {each['kind']} | {before} | {after} | {seen} |"


def _test(by: str) -> str:
    """A test without its parameters."""
    return by.split("[", 1)[0].removeprefix("tests/")
