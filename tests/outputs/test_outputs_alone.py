"""Nothing is written for a user but through the one writer: who else touches files is listed here, with the reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import meshwright

ROOT = Path(meshwright.__file__).parent
CALLS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "savefig", "export_chrome_trace", "copyfile", "copy2",
         "copytree", "move", "truncate", "rename"}
CALLED = re.compile(rf"\b(?:open|fdopen|{'|'.join(CALLS)})\s*\(|\.\s*replace\s*\(")
"""What stands in a module that could: the others are not parsed."""
ALLOWED = {
    "outputs": "the writer",
    "engine/launch.py": "a folder of its own: what ranks are told",
    "engine/worker.py": "a folder of its own: what a rank answers",
    "engine/nursery.py": "a folder of its own: how ranks ended",
    "engine/report.py": "a folder of its own: what ranks have measured",
    "engine/measure.py": "a folder of its own, then the writer: a trace",
    "engine/company.py": "a folder of its own: what ranks that stay answer",
    "engine/record/journal.py": "a folder of its own: what a rank does, as it does it; one that holds records is refused",
    "engine/profile/store.py": "samples as they come, behind each other; a file that is no store is refused",
    "measure/rehearse/store.py": "runs as they come, behind each other; a file that is no store is refused",
    "api/cells/kept.py": "cells as they come, behind each other; a file that is none is refused",
    "api/measuring/session.py": "events as they come, behind each other",
    "measure/executors/allocations.py": "a folder of its own: what a pilot is handed",
    "measure/executors/hand.py": "a folder of its own: what ranks that stay are ordered",
    "measure/executors/pilot.py": "a folder of its own: what runs in an allocation",
    "measure/executors/keeper.py": "a folder of its own: what a trial prints and how it ended",
    "measure/executors/local.py": "a folder of its own: what a keeper is told",
    "measure/executors/ray.py": "a folder of its own: a keeper, what it is told and what came of it",
    "measure/executors/ssh.py": "a folder of its own: a keeper and what it is told",
    "measure/executors/slurm.py": "a folder of its own: the script of a job and its keeper",
    "measure/trial.py": "a folder of its own: the files of a trial",
    "measure/conduct/running.py": "a folder of its own: why a trial was told to end",
    "measure/storefile.py": "a copy of a store that is refused, beside it",
    "cli/ending.py": "nothing: a stream that leads nowhere",
    "evidence/rows/attempts.py": "the shipped data, by who develops the program",
    "readers/deriving.py": "the shipped facts as JSON, by who develops the program",
}


def writes(path: Path) -> list[int]:
    """The lines of a module that could change a file."""
    found = []
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if CALLED.search(text) else ():
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [each.value for each in (*node.args, *(each.value for each in node.keywords)) if isinstance(each, ast.Constant)]
        modes = [word for word in given if isinstance(word, str) and len(word) < 4 and set(word) & set("wax+")]
        opens = name in ("open", "fdopen") and bool(modes)
        moves = name == "replace" and isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
        if name in CALLS or opens or moves:
            found.append(node.lineno)
    return found


def test_who_writes_files():
    others = {path.relative_to(ROOT).as_posix(): lines for path in sorted(ROOT.rglob("*.py")) if (lines := writes(path))}
    unlisted = {path: lines for path, lines in others.items() if path not in ALLOWED and not path.startswith("outputs/")}
    assert unlisted == {}
    assert {path for path in ALLOWED if path != "outputs"} <= set(others), "who writes no more is listed no more"
