"""``export``: a plan as the files of a framework, new ones or the user's own with another layout."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.request import Answer, Progress, Request
from meshwright.documents.opening import is_script, open_source
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.api.saved import TextFile
    from meshwright.api.views.edits import NearestPlan
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.frameworks import File
    from meshwright.frameworks.editing import Edited
    from meshwright.frameworks.settings import Given, Reading


class ExportRequest(Request, frozen=True, kw_only=True):
    """A saved plan, and what to write of it."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="plan", kind="argument", metavar="PLAN", help="A plan.yaml that `plan --save` wrote, or its directory."),
        Field(name="to", metavar="NAME[@VERSION]", panel="Output", help="The framework to write for."),
        Field(name="out", metavar="DIR", panel="Output", help="Where to write the files."),
        Field(name="onto", kind="many", metavar="FILE", panel="Output",
              help="Change this file of yours instead, repeatable: only what the plan decides; the copy goes to DIR."),
        Field(name="nearest", kind="flag", panel="Output",
              help="Where the framework cannot run the plan: the nearest one that it can, with what changes and what that costs."),
        Field(name="force", kind="flag", panel="Output", help="Overwrite files that were changed."),
    )

    plan: str | Path | None = None
    to: str | None = None
    """The framework: ``megatron``, ``megatron@0.16``."""
    out: str | Path | None = None
    onto: Sequence[str | Path] = ()
    nearest: bool = False
    force: bool = False


class ExportAnswer(Answer, frozen=True, kw_only=True):
    """What was written."""

    files: tuple[str, ...]
    """Paths."""
    edited: Edited | None = None
    """With ``onto``: what changes in the user's files, and what it means for a run that resumes."""
    plan: NearestPlan | None = None
    """With ``nearest``: what was exported, and how it differs from the saved plan."""
    notes: tuple[str, ...] = ()
    """Settings of the launch that the files do not carry, and what to mind of those that they do."""

    def to_json(self) -> dict[str, Any]:
        """The document of ``export --json``."""
        from meshwright.api.views.edits import edits_view, nearest_view

        document = {"files": list(self.files), **(edits_view(self.edited) if self.edited is not None else {})}
        document |= {"notes": list(self.notes)} if self.notes else {}
        return document | (nearest_view(self.plan) if self.plan is not None else {})


@door
def export(request: ExportRequest, *, progress: Progress | None = None) -> ExportAnswer:
    """Write the files of a framework for a saved plan, or change the user's own.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where the framework cannot run the plan.
    """
    from meshwright.api.launch_files import launch_files
    from meshwright.api.nearest import nearest_plan, refused
    from meshwright.errors import NoAnswerError
    from meshwright.estimate import estimate as predict
    from meshwright.outputs import in_folder, obstacles, write

    faults = Faults()
    values = request.read(faults)
    for name, what in (("plan", "PLAN"), ("to", "--to"), *([] if values["onto"] else [("out", "--out")])):
        if name not in values and name not in faults.failed:
            faults.add("export.missing", "{what} is missing", what=what)
    if "out" in values:
        faults.note(obstacles(folder=values["out"]))
    files = user_files(values["onto"], faults)
    given, layout = _planned(values, faults)
    if faults.messages:  # what else is wrong with the user's files, in their own languages
        with faults:
            open_source(files)
    faults.check()
    assert given is not None and layout is not None, "faults.check() raises where one is missing"
    found = nearest_plan(given, layout) if values["nearest"] else None
    layout = found.layout if found is not None else layout
    if values["onto"]:
        return replace(_changed(given, layout, values, files), plan=found)
    if reasons := refused(given, layout, offered=True):
        raise NoAnswerError(reasons)
    estimate = found.estimate if found else predict(given.case, layout)
    outputs = in_folder(values["out"], [*_plan_beside(given, estimate, values), *launch_files(given, layout, estimate)])
    notes = tuple(each.words for each in given.framework.told(given.case).remarks)
    return ExportAnswer(files=tuple(write(outputs, force=values["force"], inputs=[values["plan"]])), plan=found, notes=notes)


def _plan_beside(given: Setup, estimate: Estimate, values: Values) -> list[TextFile]:
    """The plan as it was written for this framework; nothing where the saved plan itself stands in that folder."""
    from meshwright.api.request_file import PLAN_FILE
    from meshwright.api.saved import plan_file, plan_path

    beside = Path(values["out"]) / PLAN_FILE
    given_itself = beside.exists() and beside.samefile(plan_path(values["plan"]))
    return [] if given_itself else [plan_file(given.request, estimate)]


def _planned(values: Values, faults: Faults) -> tuple[Setup | None, Layout | None]:
    """The case of the plan under the framework that it is written for, and its layout; faults are noted."""
    from meshwright.api.cases import drafted
    from meshwright.api.saved import read_plan
    from meshwright.frameworks import framework

    saved: Values = {}
    with faults:
        given = Path(values.get("plan", ""))
        if given.suffix and given.is_file() and is_script(str(given)):
            raise fault("export.script", "is a launch script and no plan; `meshwright import {script} --from FRAMEWORK --save DIR` "
                        "makes one of it", path=values["plan"], script=values["plan"])
        saved = read_plan(values["plan"], faults) if "plan" in values else {}
    if not saved:
        with faults.at("to"):
            framework(values.get("to", "megatron"))
        return None, None
    faults.places["framework"] = "--to"
    draft = drafted({**saved, "framework": values.get("to", "megatron")}, faults)
    return draft.setup, draft.layout(saved, faults)


def _changed(given: Setup, layout: Layout, values: Values, files: Sequence[File]) -> ExportAnswer:
    """A user's own files with the layout of a plan; data, learning rate, checkpoints stay. Changed copies go to ``out``."""
    from msgspec import structs

    from meshwright.check.figures import of_another_case
    from meshwright.errors import NoAnswerError
    from meshwright.frameworks.editing import DIFFERS, edit
    from meshwright.frameworks.launch_edits import launch_edits
    from meshwright.outputs import Output, write

    reading = given.framework.read(files, given=known(given), version=given.framework.version)
    for name, what in (("global_batch_sequences", "sequences a step"), ("sequence_tokens", "tokens a sequence")):
        if (said := getattr(reading.said, name)) is not None and said < 1:
            raise fault("export.figure", "the files say {said} {what}: there is at least 1 of a run", said=said, what=what,
                        path=files[0].path)
    launch = launch_edits(given.framework.at(reading.version), reading, given.case)
    edited = edit(given.framework, reading, given.case, layout, launch)
    edited = structs.replace(edited, messages=(*of_another_case(reading, given.case, layout), *edited.messages))
    if any(each.id == DIFFERS for each in edited.messages):
        raise NoAnswerError(edited.messages)
    paths: list[str] = []
    if "out" in values:
        names = copy_names(values["onto"])
        copies = [Output(path=str(Path(values["out"]) / names[file.path]), text=file.text, folder=values["out"], like=file.path)
                  for file in edited.files]
        paths = write(copies, force=values["force"], inputs=[values["plan"], *values["onto"]])
    return ExportAnswer(files=tuple(paths), edited=edited, notes=tuple(_unedited(given, reading, launch.names)))


def _unedited(given: Setup, reading: Reading, carried: Collection[str]) -> Iterator[str]:
    """Settings of the plan's launch that stay as they are in a user's files, and what to mind of those that are carried there."""
    from meshwright.frameworks.launching import chosen_of, said_settings

    own, remarks = said_settings(reading.said.launch), given.framework.told(given.case).remarks
    unsaid = {str(each.values["name"]): each.words for each in remarks if each.id == "launch.unsaid"}
    said = {str(each.values["name"]): [each.words] for each in remarks if each.id == "launch.said"}
    for name, value in chosen_of(given.case).items():
        if name in carried:
            yield from said.get(name, ())
        elif own.get(name) != value:
            now = f" (they say {own[name]})" if name in own else ""
            kept = f"{name}={value} of the plan does not change your files{now}: export without --onto has its keys"
            yield unsaid.get(name, kept)


def user_files(paths: Sequence[str], faults: Faults) -> list[File]:
    """The texts of a user's files; those that cannot be read are noted."""
    from meshwright.frameworks import File
    from meshwright.readers.safe import read_text

    files = []
    for path in paths:
        with faults:
            files.append(File(path=path, text=read_text(path)))
    return files


def known(given: Setup) -> Given:
    """What the case says beside the files."""
    from meshwright.frameworks.settings import Given

    case = given.case
    return Given(
        num_devices=case.cluster.num_devices, devices_per_node=case.cluster.devices_per_node, model=case.model,
        global_batch_sequences=case.batch.global_batch_sequences, sequence_tokens=case.batch.sequence_tokens,
        task=case.training.task,
    )


def copy_names(paths: Sequence[str]) -> dict[str, str]:
    """What copies of files are called: as the files, and where two have one name, with the folders that tell them apart."""
    names = {path: Path(path).name for path in paths}
    if len(set(names.values())) == len(names):
        return names
    whole = {path: os.path.realpath(Path(path).parent) for path in paths}
    top = os.path.commonpath(whole.values())
    return {path: str(Path(os.path.relpath(whole[path], top)) / names[path]) for path in paths}
