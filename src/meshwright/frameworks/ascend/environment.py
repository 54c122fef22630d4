"""What the environment of a launch on Ascend does to its speed (guide 002, MindSpore's: its checklists of users and of memory)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import at, other_than, whole
from meshwright.frameworks.rules import At, Mistake
from meshwright.frameworks.variables import WORDS, habits, set_twice

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.rules import Finder
    from meshwright.frameworks.settings import Reading
    from meshwright.frameworks.variables import Habit

MANY_DEVICES = 64
"""From about here the default wait of HCCL (120 s) is too short for the slowest rank."""
DEFAULT_CONNECT_S = 120
_OWNED = ("MS_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF")
"""Allocators' variables, each a list of options that a second value replaces whole."""


def _twice(reading: Reading, case: Case | None) -> Iterator[Values]:
    for document in reading.source.documents:
        if document.path.endswith((".yaml", ".yml", ".json")):
            continue
        for name, first, value, line in set_twice(document.text, _OWNED):
            place = f"{document.path}:{line}"
            yield {"variable": name, "value": value, "first": first, "expected": f"{first},{value}", "path": place}


def _is_slow(habit: Habit) -> Callable[[object], object]:
    """Whether a value is one of those that slow a run."""
    return lambda value: isinstance(value, str) and habit.bad(value)


def _timeout(reading: Reading, case: Case | None) -> Iterator[Values]:
    devices, setting = reading.said.devices or 0, reading.source.environment.get("HCCL_CONNECT_TIMEOUT")
    text = setting.value if setting else str(DEFAULT_CONNECT_S)
    seconds = whole(text)
    if devices >= MANY_DEVICES and seconds is not None and seconds <= DEFAULT_CONNECT_S:
        yield at(setting, 1800, devices=devices, value=text)


def _no_virtual_memory(variable: str, wanted: str) -> Finder:
    """Launches without the option of an allocator that gives it virtual memory."""

    def find(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.environment.get(variable)
        launched = bool(reading.source.environment) or bool(reading.source.program)
        if launched and (setting is None or (isinstance(setting.value, str) and wanted not in setting.value)):
            yield at(setting, f"{variable}={wanted}")

    return find


def _foreign(kept: Collection[str]) -> Finder:
    """Variables of CUDA and NCCL, but for some."""

    def find(reading: Reading, case: Case | None) -> Iterator[Values]:
        for name, setting in reading.source.environment.items():
            if name.startswith(("CUDA_", "NCCL_")) and name not in kept:
                yield at(setting, None, name=name)

    return find


def environment_mistakes(*, mindspore: bool) -> tuple[Mistake, ...]:
    """Mistakes in a launch's variables."""
    memory = ("MS_ALLOC_CONF", "enable_vmm:True") if mindspore else ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True")
    kept = () if mindspore else ("CUDA_DEVICE_MAX_CONNECTIONS",)  # Megatron's own check reads it on any device
    return (
        Mistake("alloc-twice", "{variable} is set twice: the second value ({value}) replaces the first ({first})", _twice,
                source="guide 002:164"),
        Mistake("vmm", "virtual memory is not switched on: peaks come from fragments of large blocks", _no_virtual_memory(*memory),
                "advice", "guide 002:164" if mindspore else "torch_npu: PYTORCH_NPU_ALLOC_CONF"),
        Mistake("slow-variable", WORDS,
                tuple(At(f"${each.variable}", each.expected, _is_slow(each), values={"name": each.variable, "words": each.words})
                      for each in habits() if each.ascend), "warning",
                "guide 002:53, 002:59; CANN and MindSpore environment variables"),
        Mistake("simulation", "MS_SIMULATION_LEVEL={value} only simulates: nothing is trained",
                At("$MS_SIMULATION_LEVEL", None, other_than(None, UNKNOWN, "")),
                source="MindSpore environment variables; guide 002:222"),
        Mistake("connect-timeout", "{devices} devices join within HCCL_CONNECT_TIMEOUT={value} s; slow ranks then end the job",
                _timeout, "advice", "CANN environment variables: HCCL_CONNECT_TIMEOUT, default 120 s"),
        Mistake("foreign-variable", "{name} does nothing on Ascend", _foreign(kept), "advice", "CANN reads HCCL_ and ASCEND_ "
                "variables, not those of CUDA and NCCL"),
    )
