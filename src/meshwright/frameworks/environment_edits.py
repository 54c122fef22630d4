"""Virtual memory for the allocator, switched on where a framework's own files or its launch say it.

A second value of a variable would replace the first: options are merged into what stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from meshwright.documents.opening import is_script
from meshwright.documents.shell_variable import set_variable
from meshwright.documents.source import UNKNOWN, File
from meshwright.errors import InputError, Message
from meshwright.frameworks.facts import CUDA, CUDA_NEW, MINDSPORE, NPU
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.documents.source import Document
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading

OPTIONS = {CUDA: "expandable_segments", CUDA_NEW: "expandable_segments", NPU: "expandable_segments", MINDSPORE: "enable_vmm"}
"""Variable -> its option for virtual memory."""
REGISTER = "NCCL_GRAPH_REGISTER"
_BUFFERS = ("--use-nccl-ub", "ddp.nccl_ub")
_GRAPHS = ("--cuda-graph-impl", "--enable-cuda-graph", "--external-cuda-graph", "model.cuda_graph_impl", "model.enable_cuda_graph",
           "model.external_cuda_graph")

State = Literal["edit", "by hand", "on", "excluded"]


class VariableEdit(Value, frozen=True, kw_only=True):
    """One variable, or key, with its value before and after."""

    name: str
    before: object
    after: object
    file: str = ""
    """Empty: none of the files starts the processes."""
    line: int = 0
    reason: str = ""


class VirtualMemory(Value, frozen=True, kw_only=True):
    """How virtual memory is switched on: edits of files, by hand, not at all, or it is on already."""

    state: State
    edits: tuple[VariableEdit, ...] = ()
    messages: tuple[Message, ...] = ()


def virtual_memory(framework: Framework, reading: Reading | None, family: str) -> VirtualMemory:
    """What switches virtual memory on for a reading (None: for no files at all) on a family of devices."""
    name = variable_of(framework, reading, family)
    option = OPTIONS[name]
    notes = [_ROCM] if family.startswith("cdna") else []
    if reading is None:
        edit = VariableEdit(name=name, before=None, after=f"{option}:True", reason=_WHY)
        return VirtualMemory(state="by hand", edits=(edit,), messages=tuple(notes))
    if blocked := next((key for key in _BUFFERS if _on(reading, key)), ""):
        excluded = Message("environment.buffers", "{key} registers buffers that {option} cannot give: one of the two",
                           {"key": blocked, "option": option}, reading.source.settings[blocked].place)
        return VirtualMemory(state="excluded", messages=(excluded,))
    if key := framework.facts.allocator_key:
        return _by_key(reading, key)
    there = reading.source.environment.get(name)
    if there is not None and there.value is UNKNOWN:
        unknown = Message("environment.unknown", "only the machine of the run knows the value of {name}: add {option}:True by hand",
                          {"name": name, "option": option}, there.place)
        return VirtualMemory(state="by hand", edits=(_edit(name, None, f"{option}:True", ""),), messages=(unknown, *notes))
    before = None if there is None or there.value is None else str(there.value)
    after = merged(before or "", option)
    if after == before:
        return VirtualMemory(state="on")
    home = launcher(reading)
    line = 0 if there is None else there.line
    edits = [_edit(name, before, after, home.path if home else "", line)]
    if any(_on(reading, key) for key in _GRAPHS) and _value(reading, REGISTER) != "0":
        edits.append(VariableEdit(
            name=REGISTER, before=_value(reading, REGISTER), after="0", file=home.path if home else "",
            reason="CUDA graphs would register memory that moves",
        ))
    if home is None:
        notes.insert(0, Message("environment.home", "none of the files starts the processes: set {name}={after} where that is done",
                                {"name": name, "after": after}))
    return VirtualMemory(state="edit" if home is not None else "by hand", edits=tuple(edits), messages=tuple(notes))


def variable_of(framework: Framework, reading: Reading | None, family: str) -> str:
    """The variable that the allocator of a framework reads on a family of devices: the one that is set, of two names for one."""
    if family == "ascend":
        return framework.facts.ascend_allocator
    if reading is not None:
        for name in (CUDA_NEW, CUDA):
            if name in reading.source.environment:
                return name
    return framework.facts.allocator


def merged(value: str, option: str) -> str:
    """The options of an allocator with one of them on; the others stay as they are.

    >>> merged("max_split_size_mb:512,expandable_segments:False", "expandable_segments")
    'max_split_size_mb:512,expandable_segments:True'
    """
    parts = [part for part in value.split(",") if part.strip()]
    names = [part.partition(":")[0].strip() for part in parts]
    if option not in names:
        return ",".join((*parts, f"{option}:True"))
    return ",".join(
        part if name != option or part.partition(":")[2].strip().lower() == "true" else f"{option}:True"
        for part, name in zip(parts, names, strict=True)
    )


def with_variables(files: Sequence[File], edits: Sequence[VariableEdit]) -> tuple[File, ...]:
    """Scripts with their variables set; the texts of ``files`` are those of the reading, or of an edit of it.

    Errors: ``InputError`` where a script cannot be changed in place.
    """
    texts = {file.path: file for file in files}
    for edit in edits:
        file = texts.get(edit.file)
        if file is not None:
            text = set_variable(file.text, edit.name, str(edit.after), path=file.path)
            texts[edit.file] = File(path=file.path, text=text, executable=file.executable)
    return tuple(texts.values())


_WHY = "pieces of memory are joined by mapping pages, so that none is too small"
_ROCM = Message("environment.rocm", "older releases of PyTorch for ROCm take this option with a warning and without effect", {})


def _edit(name: str, before: object, after: object, file: str, line: int = 0) -> VariableEdit:
    return VariableEdit(name=name, before=before, after=after, file=file, line=line, reason=_WHY)


def _by_key(reading: Reading, key: str) -> VirtualMemory:
    """A key of the framework's own files."""
    there = reading.source.settings.get(key)
    if there is not None and there.value is True:
        return VirtualMemory(state="on")
    homes = [document for document in reading.source.documents if not is_script(document.path)]
    file = there.file if there else homes[0].path if homes else ""
    edit = _edit(key, there.value if there else None, True, file, there.line if there else 0)
    return VirtualMemory(state="edit" if file else "by hand", edits=(edit,))


def launcher(reading: Reading) -> Document | None:
    """The script whose variables the processes get, where one can be changed."""
    for document in _scripts(reading):
        try:
            set_variable(document.text, "MESHWRIGHT_TRIAL", "1", path=document.path)
        except InputError:
            continue
        return document
    return None


def _scripts(reading: Reading) -> Iterator[Document]:
    yield from (document for document in reversed(reading.source.documents) if is_script(document.path))


def _value(reading: Reading, name: str) -> object:
    setting = reading.source.environment.get(name)
    return None if setting is None else setting.value


def _on(reading: Reading, key: str) -> bool:
    """Whether a key is there and not off."""
    setting = reading.source.settings.get(key)
    return setting is not None and str(setting.value).lower() not in {"none", "false", "0", "null"}
