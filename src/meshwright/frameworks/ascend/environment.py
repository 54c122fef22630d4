"""What the environment of a launch on Ascend does to its speed (guide 002, MindSpore's: its checklists of users and of memory)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import at, whole
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

MANY_DEVICES = 64
"""From about here the default wait of HCCL (120 s) is too short for the slowest rank."""
DEFAULT_CONNECT_S = 120
_EXPORT = re.compile(r"^\s*(?:export\s+)?(MS_ALLOC_CONF|PYTORCH_NPU_ALLOC_CONF)=(\S*)")


def environment_checks(prefix: str, *, mindspore: bool) -> tuple[Check, ...]:
    """Checks of a launch's variables, with identifiers of one framework."""
    checks: list[Check] = []
    add = partial(file_rule, checks)
    variable = "MS_ALLOC_CONF" if mindspore else "PYTORCH_NPU_ALLOC_CONF"

    @add(f"{prefix}.alloc-twice", "{variable} is set twice: the second value ({value}) replaces the first ({first})",
         severity="error", source="guide 002:164")
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

    @add(f"{prefix}.vmm", "virtual memory is not switched on: peaks come from fragments of large blocks", severity="advice",
         source="guide 002:164" if mindspore else "torch_npu: PYTORCH_NPU_ALLOC_CONF")
    def _vmm(reading: Reading, case: Case | None) -> Iterator[Values]:
        wanted = "enable_vmm:True" if mindspore else "expandable_segments:True"
        setting = reading.source.environment.get(variable)
        launched = bool(reading.source.environment) or bool(reading.source.program)
        if launched and (setting is None or (isinstance(setting.value, str) and wanted not in setting.value)):
            yield {"value": setting.value if setting else None, "expected": f"{variable}={wanted}",
                   "path": setting.place if setting else ""}

    @add(f"{prefix}.slow-variable", "{name}={value} {effect}", severity="warning",
         source="guide 002:53, 002:59; CANN and MindSpore environment variables")
    def _slow(reading: Reading, case: Case | None) -> Iterator[Values]:
        for name, (slow, effect, expected) in _SLOW.items():
            setting = reading.source.environment.get(name)
            if setting and isinstance(setting.value, str) and re.fullmatch(slow, setting.value.strip(), re.IGNORECASE):
                yield at(setting, expected, name=name, effect=effect)
        tracker = reading.source.environment.get("MS_ALLOC_CONF")
        if tracker and isinstance(tracker.value, str) and "memory_tracker:true" in tracker.value.lower():
            yield at(tracker, "enable_vmm:True", name="MS_ALLOC_CONF", effect="writes every allocation to a file")

    @add(f"{prefix}.simulation", "MS_SIMULATION_LEVEL={value} only simulates: nothing is trained", severity="error",
         source="MindSpore environment variables; guide 002:222")
    def _simulation(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.environment.get("MS_SIMULATION_LEVEL")
        if setting and setting.value not in (None, UNKNOWN, ""):
            yield at(setting, None)

    @add(f"{prefix}.connect-timeout", "{devices} devices join within HCCL_CONNECT_TIMEOUT={value} s; slow ranks then end the job",
         severity="advice", source="CANN environment variables: HCCL_CONNECT_TIMEOUT, default 120 s")
    def _timeout(reading: Reading, case: Case | None) -> Iterator[Values]:
        devices = reading.said.devices or 0
        setting = reading.source.environment.get("HCCL_CONNECT_TIMEOUT")
        text = setting.value if setting else str(DEFAULT_CONNECT_S)
        seconds = whole(text)
        if devices >= MANY_DEVICES and seconds is not None and seconds <= DEFAULT_CONNECT_S:
            yield at(setting, 1800, devices=devices, value=text)

    @add(f"{prefix}.foreign-variable", "{name} does nothing on Ascend", severity="advice",
         source="CANN reads HCCL_ and ASCEND_ variables, not those of CUDA and NCCL")
    def _foreign(reading: Reading, case: Case | None) -> Iterator[Values]:
        for name, setting in reading.source.environment.items():
            kept = not mindspore and name == "CUDA_DEVICE_MAX_CONNECTIONS"  # Megatron's own check reads it on any device
            if name.startswith(("CUDA_", "NCCL_")) and not kept:
                yield at(setting, None, name=name)

    return tuple(checks)


_SLOW = {
    "HCCL_DETERMINISTIC": ("true|1|strict", "makes reductions deterministic, which is slower", "false"),
    "ASCEND_LAUNCH_BLOCKING": ("1", "waits for every operator", "0"),
    "LCCL_DETERMINISTIC": ("1", "makes reductions deterministic, which is slower", "0"),
    "MS_DEV_RUNTIME_CONF": (".*synchronize:true.*", "waits for every operator", "unset"),
    "HCCL_ENTRY_LOG_ENABLE": ("1", "logs every collective", "0"),
    "ASCEND_GLOBAL_LOG_LEVEL": ("0|1", "logs at debug or info level", "3"),
}
"""Variable -> the values that slow a run, what they do, and what to set."""
