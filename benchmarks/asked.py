"""One plan that a framework was asked about: its case, its layout, the files written for it, and a hash of what it reads."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.label import parse_layout
from meshwright.frameworks import framework
from meshwright.frameworks.base import File
from meshwright.frameworks.settings import Given

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

_HEARD = re.compile(r'^ *exec .*?"\$@"|^ *\w+\+?=\(\n.*?^ *\)|^export \w+=[^"$\s]+', re.DOTALL | re.MULTILINE)
"""Of a launch script the command, the lists of words that it is given, and the environment that is fixed."""
_WORD = re.compile(r"[a-z_]{3,}")
_COMMENT = re.compile(r"^\s*#.*\n|\s+# .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan with what the framework said of it."""

    asked: str
    """``plan``: as it is written; ``refused``: an illegal plan, or one with words changed."""
    model: str
    task: str
    gradients: str
    devices: int
    batch: int
    sequence: int
    layout: str
    words: str = ""
    """Words that are added to the command."""
    files: str
    """Hash of what the framework reads."""
    accepted: bool
    why: str = ""
    """The framework's reason."""
    check: str = ""
    """What ``meshwright check`` says of a refused one: its errors."""


def case_of(name: str, row: Row) -> Case:
    """The case of a row."""
    return make_case(
        row.model, cluster_for("h100-sxm", num_devices=row.devices), global_batch_sequences=row.batch, sequence_tokens=row.sequence,
        task=row.task, gradient_dtype=row.gradients, framework=name, calibration="none",
    )


def layout_of(name: str, row: Row, case: Case) -> Layout:
    """The layout of a row."""
    there = framework(name)
    return parse_layout(
        row.layout, num_devices=row.devices, global_batch_sequences=row.batch, devices_per_node=case.cluster.devices_per_node,
        model=case.model, shards_over_context=there.features.shards_over_context,
    )


def written_of(name: str, row: Row) -> tuple[tuple[File, ...], Case, Layout]:
    """What is written for a row, with its words behind those of the launch, and the plan that it says."""
    there, case = framework(name), case_of(name, row)
    layout = layout_of(name, row, case)
    writer = there if row.asked == "plan" else replace(there, limits=())
    return tuple(_worded(file, row.words) for file in writer.write(case, layout)), case, layout


def files_of(name: str, row: Row) -> tuple[File, ...]:
    """What is written for a row."""
    return written_of(name, row)[0]


def _worded(file: File, words: str) -> File:
    """A launch script with words more."""
    return replace(file, text=file.text.replace(' "$@"\n}', f' {words} "$@"\n}}')) if words and file.executable else file


def fingerprint(files: Sequence[File]) -> str:
    """Hash of what a framework reads: configurations, of a script what it hears of it; READMEs and comments are for people."""
    read = []
    for file in files:
        if file.executable:
            read += [f"{file.path}: {found}" for found in _HEARD.findall(file.text)]
        elif not file.path.endswith(".md"):
            bare = _COMMENT.sub("", file.text) if file.path.endswith((".yaml", ".toml", ".py")) else file.text
            read.append(f"{file.path}: {bare}")
    return hashlib.sha256("\n".join(read).encode()).hexdigest()[:16]


def checked(name: str, row: Row) -> tuple[str, ...]:
    """Errors of ``meshwright check`` for the files of a row; the one whose words are most like the framework's reason first."""
    import meshwright as mw

    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for file in files_of(name, row):
            if not file.path.endswith(".md"):
                paths.append(str(Path(folder, file.path)))
                Path(paths[-1]).write_text(file.text, encoding="utf-8")
        answer = mw.check(mw.CheckRequest(files=paths, from_=name, model=row.model, task=row.task, device="h100-sxm"))
    said = set(_WORD.findall(row.why.lower()))
    errors = [(finding["id"], said & set(_WORD.findall(finding["message"].lower())))
              for finding in answer.to_json()["findings"] if finding["severity"] == "error"]
    alike = sorted(errors, key=lambda error: -len(error[1]))
    return tuple(each for each in dict.fromkeys(id for id, _ in alike) if each != "check.memory")  # no framework knows that


def rules_broken(name: str, written: Sequence[File], case: Case) -> set[str]:
    """What the framework's adapter has against the files of a row: the part of ``checked`` that needs no search and no estimate."""
    there = framework(name)
    files = [file for file in written if not file.path.endswith(".md")]
    reading = there.read(files, version=there.version, given=Given(num_devices=case.cluster.num_devices, model=case.model))
    found = {message.id for message in reading.messages}
    found |= {each.message.id for check in there.checks for each in check.findings(reading, case) if each.severity == "error"}
    return found | {limit.id for limit in there.limits if reading.layout is not None and limit.check(case, reading.layout)}
