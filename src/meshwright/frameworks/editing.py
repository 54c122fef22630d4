"""A user's own files with another layout: only what the layout decides changes, and each change says what it means.

What is edited is the difference between how the framework would write the layout that the files have and the one that
is wanted: a key that says the same in both keeps the user's spelling, comments and place.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.naming import launches
from meshwright.documents.source import Inherited
from meshwright.documents.tree import TreeDocument
from meshwright.errors import InputError, Message, fault
from meshwright.frameworks.base import File, Framework
from meshwright.frameworks.environment_edits import VariableEdit, launcher, with_variables
from meshwright.frameworks.launch_edits import NOTHING, LaunchEdits
from meshwright.frameworks.resume import Meaning, changed_knobs, meaning
from meshwright.frameworks.settings import Given
from meshwright.frameworks.surface import typed

if TYPE_CHECKING:
    from meshwright.documents.source import Document
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading


SHARDING = frozenset({"zero", "overlap"})
"""Knobs of the surface that mean nothing where there is one replica."""
SWITCHES = frozenset({"true", "false"})
DIFFERS = "edit.differs"
"""The message of files that say another layout although all their keys were changed."""


class Edit(Struct, frozen=True, kw_only=True):
    """One key of a file with its value before and after (None: it does not stand there)."""

    key: str
    before: object
    after: object
    file: str
    line: int
    """Where it stands now; 0 where it is added."""
    meaning: Meaning
    """What the change means for a run that resumes."""


class Edited(Struct, frozen=True, kw_only=True):
    """Files with another layout."""

    files: tuple[File, ...]
    """Those that changed, whole."""
    edits: tuple[Edit, ...]
    meaning: Meaning
    """What all changes together mean for a run that resumes."""
    diff: str
    """Unified, without colours."""
    messages: tuple[Message, ...] = ()
    """What is left to be changed by hand: the launcher starts another number of devices, say."""


def no_layout(reading: Reading) -> tuple[Message, ...]:
    """That there is nothing to change in files, with everything that keeps them from having a layout."""
    return (*reading.messages, Message("edit.layout", "the files determine no layout, so there is nothing to change", {}))


def edit(
    framework: Framework, reading: Reading, case: Case, layout: Layout, launch: LaunchEdits = NOTHING
) -> Edited:
    """The files of a reading, changed so that they have this layout, and settings of a launch with it.

    Errors: ``InputError`` where the files have no layout to start from, where the framework cannot run the new one, or
    where a value cannot be changed in place.
    """
    there = framework.at(reading.version)
    if reading.layout is None or there.decide is None:
        raise InputError(no_layout(reading))
    if broken := there.check(case, layout):
        raise InputError(broken)
    changes = _needed(there, reading, case, layout, differences(there, reading, case, layout))
    changes = {**changes, **{key: value for key, value in launch.keys.items() if not _stands(there, reading, key, value)}}
    documents = {document.path: document for document in reading.source.documents}
    files = _changed(there, reading, changes)
    variables = _variables(reading, launch)
    if variables:
        files = tuple(
            file for file in with_variables(_whole(reading, files), variables) if file.text != documents[file.path].text
        )
    knobs = changed_knobs(reading.layout, layout)
    return Edited(
        files=files,
        edits=(
            *(_edit(there, reading, key, after, knobs) for key, after in changes.items()),
            *(Edit(key=each.name, before=each.before, after=each.after, file=each.file, line=each.line,
                   meaning=meaning(there.resume, ())) for each in variables),
        ),
        meaning=meaning(there.resume, knobs),
        diff="".join(_diff(documents[file.path], file) for file in files),
        messages=_left(there, reading, files, case, layout),
    )


def _changed(framework: Framework, reading: Reading, changes: Mapping[str, object]) -> tuple[File, ...]:
    """The files that hold some keys, with their new values."""
    documents = {document.path: document for document in reading.source.documents}
    by_document: dict[str, dict[str, object]] = {}
    for key, after in changes.items():
        by_document.setdefault(_home(reading, key).path, {})[key] = after
    return tuple(
        File(path=path, text=_following(documents[path], framework).changed(edits), executable=False)
        for path, edits in by_document.items()
    )


def _variables(reading: Reading, launch: LaunchEdits) -> tuple[VariableEdit, ...]:
    """Variables of a launch that the script which starts it does not set so.

    Errors: ``InputError`` where none of the files starts the processes.
    """
    environment, found = reading.source.environment, []
    for name, value in launch.variables.items():
        there = environment.get(name)
        if there is not None and there.value == value:
            continue
        home = launcher(reading)
        if home is None:
            raise fault("edit.variable", "{name}={value} is to be set, but none of the files starts the processes", name=name,
                        value=value)
        found.append(VariableEdit(
            name=name, before=None if there is None else there.value, after=value, file=home.path, line=there.line if there else 0,
        ))
    return tuple(found)


def _whole(reading: Reading, files: tuple[File, ...]) -> list[File]:
    """All files of a reading, those that changed as they are now."""
    changed = {file.path: file for file in files}
    return [changed.get(document.path, File(path=document.path, text=document.text)) for document in reading.source.documents]


def _again(reading: Reading, files: tuple[File, ...]) -> list[File]:
    """All files as they are read again: those of a reading, and those that its scripts read in."""
    scripts = [launch.shell for launch in launches(reading.source)]
    return [*_whole(reading, files), *(File(path=path, text=shell.beside[path]) for shell in scripts for path in shell.read)]


def _needed(
    framework: Framework, reading: Reading, case: Case, layout: Layout, changes: Mapping[str, object]
) -> Mapping[str, object]:
    """The changes without those that one replica alone makes needless.

    With nothing to shard and nothing to overlap, a user's switches and stages of either mean nothing: they stay where the
    framework reads the same layout with them and has no more to say against it. Where words change (another back end), all do.
    """
    if layout.data_parallel * layout.context_parallel > 1:
        return changes
    knobs = framework.surface().knobs() if framework.surface is not None else {}
    found = {key: str(value).lower() for key in changes if knobs.get(key) in SHARDING
             and (value := reading.source.value(key)) is not None}
    if any(value not in SWITCHES and not value.isdigit() for value in found.values()):
        return changes
    spare = [key for key, value in found.items() if value in SWITCHES or key.endswith("stage")]
    given = Given(
        num_devices=layout.world, devices_per_node=case.cluster.devices_per_node, model=case.model, task=case.training.task,
    )

    def said(trial: Mapping[str, object]) -> set[str] | None:
        """What the framework says of the files with these changes; None where they are not the layout."""
        try:
            again = framework.read(_again(reading, _changed(framework, reading, trial)), version=framework.version, given=given)
        except InputError:
            return None
        same = again.layout is not None and _same(framework, case, again.layout, layout)
        return {message.id for message in again.messages} if same else None

    before = said(changes) if spare else None
    for keys in (spare, *([key] for key in spare)):
        trial = {key: value for key, value in changes.items() if key not in keys}
        if before is not None and (now := said(trial)) is not None and now <= before:
            changes = trial
    return changes


def _same(framework: Framework, case: Case, one: Layout, other: Layout) -> bool:
    """Whether layouts are the same to a framework; of one replica, whatever would be overlapped with others."""

    def normal(layout: Layout) -> Layout:
        found = framework.normal(case, layout)
        if layout.data_parallel * layout.context_parallel > 1:
            return found
        return replace(found, overlap=replace(found.overlap, gradient_reduce=False, parameter_gather=False))

    return normal(one) == normal(other)


def _following(document: Document, framework: Framework) -> Document:
    """A document in which the framework's followers may change through their aliases."""
    if isinstance(document, TreeDocument) and framework.followers:
        return replace(document, followers=framework.followers)
    return document


def _left(
    framework: Framework, reading: Reading, files: tuple[File, ...], case: Case, layout: Layout
) -> tuple[Message, ...]:
    """What the changed files, read again, do not say as wanted: the devices that they start, or the layout itself."""
    assert reading.layout is not None, "the caller has checked"
    whole = _again(reading, files)
    given = Given(
        num_devices=layout.world, devices_per_node=case.cluster.devices_per_node, model=case.model, task=case.training.task,
    )
    try:
        again = framework.read(whole, version=framework.version, given=given)
        alone = framework.read(whole, version=framework.version, given=Given(model=case.model, task=case.training.task))
    except InputError as error:
        return error.messages
    started = alone.said.devices or alone.source.devices
    if started is not None and started != layout.world:
        return (Message("edit.devices", "the files start {started} devices, the new layout needs {world}: "
                        "change the launcher's nodes and processes by hand",
                        {"started": started, "world": layout.world}),)
    if started is None and reading.layout.world != layout.world:
        return (Message("edit.devices", "the new layout needs {world} devices instead of {before}, and the files do not say how "
                        "many are started", {"world": layout.world, "before": reading.layout.world}),)
    if again.layout is None or not _same(framework, case, again.layout, layout):
        return (Message(DIFFERS, "changed in place, the files do not read as the wanted layout: see what import says of them, or "
                        "export without --onto", {}),)
    return ()


def differences(framework: Framework, reading: Reading, case: Case, layout: Layout) -> Mapping[str, object]:
    """Key -> new value (None: taken out) of everything that must change in the files."""
    assert framework.decide is not None and reading.layout is not None, "the caller has checked"
    before = framework.settings(case, framework.normal(case, reading.layout))
    after = framework.settings(case, framework.normal(case, layout))
    changes: dict[str, object] = {}
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            changes[key] = after.get(key)
    for group in framework.alternatives:
        if group & set(changes):
            stands = {key: reading.source.value(key) for key in group if reading.source.value(key) is not None}
            changes |= {key: after.get(key) for key, value in stands.items() if str(value) != str(after.get(key))}
    return {
        key: value for key, value in changes.items()
        if (value is not None or reading.source.setting(key) is not None) and not _stands(framework, reading, key, value)
        and not framework.stays(reading, layout, key)
    }


def _stands(framework: Framework, reading: Reading, key: str, value: object) -> bool:
    """Whether a key already has a value in the files or beneath them, in whatever spelling."""
    setting = reading.source.setting(key)
    if setting is None or value is None or setting.value is None:
        return False
    one, two = (_typed(framework, key, each) for each in (setting.value, value))
    return type(one) is type(two) and one == two


def _typed(framework: Framework, key: str, value: object) -> object:
    """A value in the type of its key: flags are words in a script; what is no such value stays as it is."""
    known = framework.surface().find(key, framework.version) if framework.surface is not None else None
    try:
        return value if known is None or value is None else typed(known, value)
    except InputError:
        return value


def _home(reading: Reading, key: str) -> Document:
    """The document that holds a key, or the one where its like stand."""
    setting = reading.source.settings.get(key)
    documents = reading.source.documents
    if setting is not None:
        holds = next(document for document in documents if document.path == setting.file)
        return next(each for each in documents if each.path == holds.heir) if isinstance(holds, Inherited) else holds
    alike = [document for document in documents if _alike(document, key) and not isinstance(document, Inherited)]
    if not alike:
        raise fault("edit.home", "{key} is to be set, but none of the files holds settings of its kind", key=key)
    return max(alike, key=lambda document: _shared_prefix(document, key))


def _alike(document: Document, key: str) -> bool:
    """Whether a document holds settings in the spelling of a key: flags, or dotted keys."""
    return any(other.startswith("-") == key.startswith("-") for other in document.settings())


def _shared_prefix(document: Document, key: str) -> int:
    """How many leading sections a key shares with any key of a document."""
    parts = key.split(".")
    best = 0
    for other in document.settings():
        names = other.split(".")
        same = next((depth for depth, (one, two) in enumerate(zip(parts, names, strict=False)) if one != two), 0)
        best = max(best, same)
    return best


def _edit(framework: Framework, reading: Reading, key: str, after: object, knobs: tuple[str, ...]) -> Edit:
    """One change with its meaning: that of the key's own knob, where the surface names one that changed."""
    setting = reading.source.setting(key)
    knob = framework.surface().knobs().get(key, "") if framework.surface is not None else ""
    file = _home(reading, key).path
    line = setting.line if setting and setting.file == file else 0
    return Edit(
        key=key, before=_typed(framework, key, setting.value) if setting else None, after=after, file=file, line=line,
        meaning=meaning(framework.resume, (knob,) if knob in knobs else knobs),
    )


def _diff(document: Document, file: File) -> str:
    """A unified diff of one file."""
    return "".join(
        line if line.endswith("\n") else f"{line}\n"
        for line in difflib.unified_diff(
            document.text.splitlines(keepends=True), file.text.splitlines(keepends=True), f"a/{file.path}", f"b/{file.path}", n=2
        )
    )
