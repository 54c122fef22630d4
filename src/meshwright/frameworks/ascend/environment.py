"""What the environment of a launch on Ascend does to its speed (guide 002, MindSpore's: its checklists of users and of memory)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import at, other_than, whole
from meshwright.frameworks.rules import At, Mistake

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.rules import Finder
    from meshwright.frameworks.settings import Reading

MANY_DEVICES = 64
"""From about here the default wait of HCCL (120 s) is too short for the slowest rank."""
DEFAULT_CONNECT_S = 120
_EXPORT = re.compile(r"^\s*(?:export\s+)?(MS_ALLOC_CONF|PYTORCH_NPU_ALLOC_CONF)=(\S*)")


_SLOW = {
    "HCCL_DETERMINISTIC": ("true|1|strict", "makes reductions deterministic, which is slower", "false"),
    "ASCEND_LAUNCH_BLOCKING": ("1", "waits for every operator", "0"),
    "LCCL_DETERMINISTIC": ("1", "makes reductions deterministic, which is slower", "0"),
    "MS_DEV_RUNTIME_CONF": (".*synchronize:true.*", "waits for every operator", "unset"),
    "HCCL_ENTRY_LOG_ENABLE": ("1", "logs every collective", "0"),
    "ASCEND_GLOBAL_LOG_LEVEL": ("0|1", "logs at debug or info level", "3"),
}
"""Variable -> the values that slow a run, what they do, and what to set."""


def _twice(reading: Reading, case: Case | None) -> Iterator[Values]:
    for document in reading.source.documents:
        if document.path.endswith((".yaml", ".yml", ".json")):
            continue
        seen: dict[str, str] = {}
        for line, text in enumerate(document.text.splitlines(), start=1):
            found = _EXPORT.match(text)
            if not found:
                continue
            name, value = found[1], found[2].strip("\"'")
            if name in seen and seen[name] != value and f"${name}" not in value.replace("{", ""):
                yield {"variable": name, "value": value, "first": seen[name], "expected": f"{seen[name]},{value}",
                       "path": f"{document.path}:{line}"}
            seen[name] = value


def _is_slow(slow: str) -> Callable[[object], object]:
    """Whether a value is one of those that slow a run."""
    return lambda value: isinstance(value, str) and re.fullmatch(slow, value.strip(), re.IGNORECASE)


def _tracks_memory(value: object) -> bool:
    return isinstance(value, str) and "memory_tracker:true" in value.lower()


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
        Mistake("slow-variable", "{name}={value} {effect}",
                (
                        *(At(f"${name}", expected, _is_slow(slow), values={"name": name, "effect": effect})
                          for name, (slow, effect, expected) in _SLOW.items()),
                        At("$MS_ALLOC_CONF", "enable_vmm:True", _tracks_memory,
                           values={"name": "MS_ALLOC_CONF", "effect": "writes every allocation to a file"}),
                    ), "warning", "guide 002:53, 002:59; CANN and MindSpore environment variables"),
        Mistake("simulation", "MS_SIMULATION_LEVEL={value} only simulates: nothing is trained",
                At("$MS_SIMULATION_LEVEL", None, other_than(None, UNKNOWN, "")),
                source="MindSpore environment variables; guide 002:222"),
        Mistake("connect-timeout", "{devices} devices join within HCCL_CONNECT_TIMEOUT={value} s; slow ranks then end the job",
                _timeout, "advice", "CANN environment variables: HCCL_CONNECT_TIMEOUT, default 120 s"),
        Mistake("foreign-variable", "{name} does nothing on Ascend", _foreign(kept), "advice", "CANN reads HCCL_ and ASCEND_ "
                "variables, not those of CUDA and NCCL"),
    )
