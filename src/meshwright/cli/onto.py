"""``export --onto FILE``: a user's own files with the layout of a plan; data, learning rate, checkpoints stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.api.fields import Values
    from meshwright.domain.layout import Layout
    from meshwright.frameworks import File
    from meshwright.frameworks.settings import Given


def change(given: Setup, layout: Layout, values: Values) -> int:
    """Print what changes, with what it means for a run that resumes, and write the changed copies to ``--out``."""
    from meshwright.api.files import write_files
    from meshwright.api.views.edits import edits_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.frameworks.editing import edit
    from meshwright.report.edits import edits_report

    reading = given.framework.read(user_files(values["onto"]), given=known(given), version=given.framework.version)
    edited = edit(given.framework, reading, given.case, layout)
    paths: list[str] = []
    if "out" in values:
        copies = [replace(file, path=Path(file.path).name, executable=_executable(file.path)) for file in edited.files]
        paths = write_files(values["out"], copies, force=values["force"])
    if values["json"]:
        print_json({"files": paths, **edits_view(edited)})
    else:
        print_report(edits_report(edited))
        print("\n".join(paths))
    return 0


def user_files(paths: list[str]) -> list[File]:
    """The texts of a user's files."""
    from meshwright.frameworks import File
    from meshwright.readers.safe import read_text

    return [File(path=path, text=read_text(path)) for path in paths]


def known(given: Setup) -> Given:
    """What the case says beside the files."""
    from meshwright.frameworks.settings import Given

    case = given.case
    return Given(
        num_devices=case.cluster.num_devices, devices_per_node=case.cluster.devices_per_node, model=case.model,
        global_batch_sequences=case.batch.global_batch_sequences, sequence_tokens=case.batch.sequence_tokens,
    )


def _executable(path: str) -> bool:
    """Whether the user may run the file."""
    return bool(Path(path).stat().st_mode & 0o100)
