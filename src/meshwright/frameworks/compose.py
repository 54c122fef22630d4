"""From settings to a layout: typed access that notes what is wrong, and the arithmetic that files leave open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from meshwright.documents.source import UNKNOWN, Source
from meshwright.errors import InputError, Message
from meshwright.frameworks.settings import Given
from meshwright.frameworks.surface import Surface, typed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.documents.source import Setting

Count: TypeAlias = int
Truth: TypeAlias = bool
"""The types, where methods of ``Values`` have their names."""


class Values(Struct, kw_only=True):
    """Typed values of a source for one release. What is wrong is noted once in ``messages`` and reads as absent."""

    source: Source
    surface: Surface
    release: str
    strict: Truth = False
    """Numbers must not stand in quotes (YAML, JSON, TOML)."""
    messages: list[Message] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    """Keys with a value that cannot be used."""
    uncertain: Truth = False
    """Whether a degree could not be used: what follows from it by arithmetic is no news."""

    def get(self, key: str) -> object:
        """The value in the type of its key; None where it is absent, null, unknown or wrong."""
        setting = self.source.setting(key)
        if setting is None or setting.value is None or key in self.failed:
            return None
        if setting.value is UNKNOWN:
            self._note_unknown(setting)
            return None
        known = self.surface.find(key, self.release)
        if known is None:
            return setting.value
        try:
            return typed(known, setting.value, strict=self.strict)
        except InputError as error:
            self.failed.add(key)
            self.messages += [Message(each.id, each.template, each.values, setting.place) for each in error.messages]
            return None

    def int(self, key: str, default: Count | None = None) -> Count | None:
        """A whole number."""
        value = self.get(key)
        return value if isinstance(value, Count) and not isinstance(value, Truth) else default

    def degree(self, key: str, default: Count = 1) -> Count:
        """A whole number of at least 1."""
        value = self.int(key, default)
        self.uncertain = self.uncertain or key in self.failed
        if value is None or value < 1:
            self.note(key, "setting.degree", "{key} is {value}: at least 1 is expected", key=key, value=value)
            return default
        return value

    def bool(self, key: str, default: Truth = False) -> Truth:
        """A switch or truth value."""
        value = self.get(key)
        return value if isinstance(value, Truth) else default

    def text(self, key: str, default: str = "") -> str:
        """A word."""
        value = self.get(key)
        return value if isinstance(value, str) else default

    def number(self, key: str, default: float | None = None) -> float | None:
        """A number."""
        value = self.get(key)
        return float(value) if isinstance(value, (Count, float)) and not isinstance(value, Truth) else default

    def words(self, key: str) -> tuple[str, ...]:
        """One or more words; none where the key is absent."""
        value = self.get(key)
        return tuple(str(each) for each in value) if isinstance(value, (tuple, list)) else ()

    def has(self, key: str) -> Truth:
        """Whether the key stands there with a value."""
        return self.source.value(key) is not None

    def first(self, keys: Iterable[str]) -> str | None:
        """The first of some keys that is there."""
        return next((key for key in keys if self.has(key)), None)

    def note(self, key: str, id: str, template: str, /, **values: object) -> None:
        """Note a fault of a key, at its place; once for each key."""
        if key not in self.failed:
            self.failed.add(key)
            setting = self.source.setting(key)
            self.messages.append(Message(id, template, values, setting.place if setting else ""))

    def _note_unknown(self, setting: Setting) -> None:
        """Note what a value hangs on, and how to say it."""
        positional = sorted((name for name in setting.hangs_on if name[1:].isdigit()), key=lambda name: int(name[1:]))
        plain = [name for name in setting.hangs_on if re.fullmatch(r"\$[A-Za-z_]\w*", name)]
        undecided = {f"${each.values.get('name')}" for each in self.source.remarks if each.id == "shell.undecided"}
        called = any(name[1:].isdigit() for each in self.source.settings.values() for name in each.hangs_on)
        all_arguments = '; give all that the script is called with as --arguments "..."'
        why = how = ""
        if positional:
            why = f": it hangs on argument {', '.join(name[1:] for name in positional)} of the script"
            how = all_arguments
        elif plain and plain[0] in undecided:
            why = f": it hangs on {plain[0]}, which the script decides when it runs"
            how = all_arguments if called else ""
        elif plain:
            why = f": it hangs on {', '.join(plain)}"
            how = f'; --arguments "{plain[0][1:]}=..." gives it'
        elif setting.hangs_on:
            why = f": it hangs on {', '.join(setting.hangs_on)}"
        words = "{key} is only known when the job runs{why}{how}"
        self.note(setting.key, "setting.unknown", words, key=setting.key, why=why, how=how)

    def refuse(self, id: str, template: str, /, **values: object) -> None:
        """Note a fault of the whole; devices are not missing where their number is there and wrong."""
        if id == "import.devices" and any(each.id == "launch.count" for each in self.source.remarks):
            return
        self.messages.append(Message(id, template, values))


def world_of(values: Values, given: Given) -> int | None:
    """Devices: as given beside the files, or as the launcher says; None (with a message) where nobody does."""
    world = given.num_devices or values.source.devices
    if world is None:
        values.refuse("import.devices", "the files do not say how many devices there are: give --devices, or --cluster")
    return world


def data_parallel_of(values: Values, world: int | None, replica: int) -> int | None:
    """Replicas of the model: devices / replica; None (with a message) where it does not divide them."""
    if world is None or values.uncertain:
        return None
    if world % replica:
        values.refuse(
            "import.world", "world size ({world}) is not divisible by the {replica} devices of one replica",
            world=world, replica=replica,
        )
        return None
    return world // replica


def microbatches_of(values: Values, batch: int | None, microbatch: int, dp: int | None) -> int | None:
    """Micro-batches of a step and replica: batch / (dp x microbatch); None (with a message) where it does not divide."""
    if dp is None:
        return None
    if batch is None:
        values.refuse("import.batch", "the files do not say the global batch: give --global-batch")
        return None
    if batch % (dp * microbatch):
        values.refuse(
            "import.microbatches",
            "global batch {batch} is no multiple of micro-batch x data-parallel = {microbatch} x {dp} = {product}",
            batch=batch, microbatch=microbatch, dp=dp, product=dp * microbatch,
        )
        return None
    return batch // (dp * microbatch)


def zero_shards(stage: int, group: int) -> Mapping[str, int]:
    """The three shard groups of a ZeRO stage over ``group`` ranks, as fields of a layout."""
    return {
        "optimizer_shards": group if stage >= 1 else 1,
        "gradient_shards": group if stage >= 2 else 1,
        "parameter_shards": group if stage >= 3 else 1,
    }
