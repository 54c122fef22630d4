"""A change as edits of the user's files: a layout, variables of the launch, single keys; one diff of them all."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.documents.opening import open_document
from meshwright.documents.shell_variable import set_variable
from meshwright.documents.source import File
from meshwright.errors import InputError, Message
from meshwright.fix.answer import FieldEdit
from meshwright.frameworks.editing import edit
from meshwright.frameworks.resume import Meaning, changed_knobs, meaning

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.environment_edits import VariableEdit
    from meshwright.frameworks.settings import Reading

UNTOUCHED = Meaning(resume="same checkpoint", reason="weights and optimizer state are cut as before")


@dataclass(slots=True)
class Written:
    """What a change does to files, and what it leaves to be done by hand."""

    edits: list[FieldEdit] = field(default_factory=list)
    files: tuple[File, ...] = ()
    diff: str = ""
    by_hand: list[Message] = field(default_factory=list)
    meaning: Meaning = UNTOUCHED


def written(
    framework: Framework, reading: Reading, case: Case, *, layout: Layout | None = None, variables: Sequence[VariableEdit] = (),
    originals: Mapping[str, str] | None = None,
) -> Written:
    """Files with another layout (None: the one that they have) and other variables or keys.

    ``originals``: texts of files whose reading has more in front (the words that a script is called with). What cannot be changed
    in place is said in ``by_hand``.
    """
    result = Written()
    texts = {document.path: document.text for document in reading.source.documents}
    if layout is not None and reading.layout is not None:
        _lay_out(framework, reading, case, layout, texts, result)
    for each in variables:
        try:
            if each.file:
                texts[each.file] = _set(each, texts[each.file])
        except InputError as error:
            result.by_hand += error.messages
        result.edits.append(FieldEdit(field=each.name, before=each.before, after=each.after, file=each.file, line=each.line,
                                      meaning=UNTOUCHED))
    _compare(reading, texts, originals or {}, result)
    return result


def _lay_out(
    framework: Framework, reading: Reading, case: Case, layout: Layout, texts: dict[str, str], result: Written
) -> None:
    """The edits of a layout, or why they have to be made by hand."""
    assert reading.layout is not None, "the caller has checked"
    result.meaning = meaning(framework.resume, changed_knobs(reading.layout, layout))
    try:
        edited = edit(framework, reading, case, layout)
    except InputError as error:
        result.by_hand += error.messages
        return
    texts.update({file.path: file.text for file in edited.files})
    result.edits += [
        FieldEdit(field=each.key, before=each.before, after=each.after, file=each.file, line=each.line, meaning=each.meaning)
        for each in edited.edits
    ]
    result.by_hand += edited.messages


def _set(edit: VariableEdit, text: str) -> str:
    """A file with one variable, or one dotted key, of another value."""
    if "." not in edit.name:
        return set_variable(text, edit.name, str(edit.after), path=edit.file)
    document, _ = open_document(edit.file, text)
    return document.changed({edit.name: edit.after})


def _compare(reading: Reading, texts: Mapping[str, str], originals: Mapping[str, str], result: Written) -> None:
    """Changed files without what was put in front of them, and their diff."""
    files, lines = [], list[str]()
    for document in reading.source.documents:
        before, after = document.text, texts[document.path]
        if before == after:
            continue
        original = originals.get(document.path, before)
        head = before[: len(before) - len(original)]
        if not (before.endswith(original) and after.startswith(head)):
            result.by_hand.append(
                Message("fix.arguments", "comes from the words that the script is called with", {}, document.path)
            )
            continue
        after, name = after[len(head) :], document.path.lstrip("/")
        files.append(File(path=document.path, text=after))
        lines += difflib.unified_diff(
            original.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=2
        )
    result.files = tuple(files)
    result.diff = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
