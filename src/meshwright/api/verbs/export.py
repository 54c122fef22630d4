"""``export``: a plan as the files of a framework, new ones or the user's own with another layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.fields import Faults, Field, Values
from meshwright.api.request import Answer, Progress, Request

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.domain.layout import Layout
    from meshwright.frameworks import File
    from meshwright.frameworks.editing import Edited
    from meshwright.frameworks.settings import Given


@dataclass(frozen=True, kw_only=True)
class ExportRequest(Request):
    """A saved plan, and what to write of it."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="plan", kind="argument", metavar="PLAN", help="A plan.yaml that `plan --save` wrote, or its directory."),
        Field(name="to", metavar="NAME[@VERSION]", panel="Output", help="The framework to write for."),
        Field(name="out", metavar="DIR", panel="Output", help="Where to write the files."),
        Field(name="onto", kind="many", metavar="FILE", panel="Output",
              help="Change this file of yours instead, repeatable: only what the plan decides; the copy goes to DIR."),
        Field(name="force", kind="flag", panel="Output", help="Overwrite files that were changed."),
    )

    plan: str | Path | None = None
    to: str | None = None
    """The framework: ``megatron``, ``megatron@0.16``."""
    out: str | Path | None = None
    onto: Sequence[str | Path] = ()
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportAnswer(Answer):
    """What was written."""

    files: tuple[str, ...]
    """Paths."""
    edited: Edited | None = None
    """With ``onto``: what changes in the user's files, and what it means for a run that resumes."""

    def to_json(self) -> dict[str, Any]:
        """The document of ``export --json``."""
        from meshwright.api.views.edits import edits_view

        return {"files": list(self.files), **(edits_view(self.edited) if self.edited is not None else {})}


def export(request: ExportRequest, *, progress: Progress | None = None) -> ExportAnswer:
    """Write the files of a framework for a saved plan, or change the user's own.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where the framework cannot run the plan.
    """
    from meshwright.api.cases import setup
    from meshwright.api.files import write_files
    from meshwright.api.launch_files import launch_files
    from meshwright.api.saved import load_plan
    from meshwright.estimate import estimate as predict

    faults = Faults()
    values = request.read(faults)
    for name, what in (("plan", "PLAN"), ("to", "--to"), *([] if values["onto"] else [("out", "--out")])):
        if name not in values and name not in faults.failed:
            faults.add("export.missing", "{what} is missing", what=what)
    faults.check()
    saved = {**load_plan(values["plan"], faults), "framework": values["to"]}
    given = setup(saved, faults)
    layout = given.layout(saved["layout"])
    if values["onto"]:
        return _changed(given, layout, values)
    files = launch_files(given, layout, predict(given.case, layout))
    return ExportAnswer(files=tuple(write_files(values["out"], files, force=values["force"])))


def _changed(given: Setup, layout: Layout, values: Values) -> ExportAnswer:
    """A user's own files with the layout of a plan; data, learning rate, checkpoints stay. Changed copies go to ``out``."""
    from meshwright.api.files import write_files
    from meshwright.frameworks.editing import edit

    reading = given.framework.read(user_files(values["onto"]), given=known(given), version=given.framework.version)
    edited = edit(given.framework, reading, given.case, layout)
    paths: list[str] = []
    if "out" in values:
        copies = [replace(file, path=Path(file.path).name, executable=_executable(file.path)) for file in edited.files]
        paths = write_files(values["out"], copies, force=values["force"])
    return ExportAnswer(files=tuple(paths), edited=edited)


def user_files(paths: Sequence[str]) -> list[File]:
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
