"""What checks of files ask: typed flags, their places, and the grid that they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.frameworks.compose import Values
from meshwright.frameworks.keys import told
from meshwright.frameworks.megatron.flags import parse_version, surface
from meshwright.frameworks.megatron.layout_arguments import DEGREES

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values as Found
    from meshwright.frameworks.settings import Reading

ARGUMENTS = "Megatron-LM megatron/training/arguments.py"
"""Source of most rules."""
FSDP = ("--use-megatron-fsdp", "--use-custom-fsdp")


class Grid(Struct, frozen=True, kw_only=True):
    """Degrees of a script, and the ranks of data parallelism where the devices are known and divide."""

    tp: int
    pp: int
    cp: int
    world: int | None
    dp: int | None


def flags(reading: Reading) -> Values:
    """The flags of a reading in the types of its release."""
    return Values(source=reading.source, surface=surface(), release=reading.version)


def minor(reading: Reading) -> int:
    """The minor version that a reading is for."""
    return parse_version(reading.version).minor


def has(reading: Reading, flag: str) -> bool:
    """Whether a flag stands there and the release has it."""
    return reading.source.value(flag) is not None and surface().find(flag, reading.version) is not None


def at(reading: Reading, flag: str, /, **values: object) -> Found:
    """Values of a finding about a flag: its value and its place, then those of the words."""
    setting = reading.source.settings.get(flag)
    place = {"value": setting.value, "path": setting.place} if setting else {}
    return {**place, **values}


def grid_of(reading: Reading) -> Grid:
    """The degrees that are written, 1 where none is."""
    values = flags(reading)
    tp, pp, cp = (told(DEGREES, values, knob) for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel"))
    world = reading.said.devices
    dp = world // (tp * pp * cp) if world and world % (tp * pp * cp) == 0 else None
    return Grid(tp=tp, pp=pp, cp=cp, world=world, dp=dp)


def is_sharded(reading: Reading) -> bool:
    """Whether an FSDP shards the parameters."""
    return any(has(reading, flag) for flag in (*FSDP, "--use-torch-fsdp2"))


def is_complete(reading: Reading) -> bool:
    """Whether every word of the launch is known; else a flag that is not there may stand in an option that is not known."""
    from meshwright.documents.launch import LaunchDocument

    launches = [document.shell.found for document in reading.source.documents if isinstance(document, LaunchDocument)]
    return all(word.known for launch in launches if launch is not None for word in launch.arguments)
