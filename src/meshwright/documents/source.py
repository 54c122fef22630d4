"""What stands in a user's files: values under the keys of the files themselves, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.errors import Message


class Unknown(Enum):
    """The value of a setting that only the machine of the run knows (``$(nproc)``, an unset variable)."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class Nothing(Enum):
    """What an edit writes out over a value that stands beneath the files: a language's own word for none (``None``, ``null``)."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING


class Setting(Value, frozen=True, kw_only=True):
    """One value under the framework's own name: ``--seq-length``, ``parallelism.tp``.

    ``value`` is what the file's language makes of it: text of a flag (a tuple of texts where it has several, True where
    it has none), a scalar, list or mapping of YAML, JSON and TOML, ``UNKNOWN``, or None for null (and for a variable
    that is unset).
    """

    key: str
    value: object
    file: str = ""
    line: int = 0
    hangs_on: tuple[str, ...] = ()
    """What an ``UNKNOWN`` value hangs on, as a script spells it: ``$11``, ``$SLURM_NNODES``, ``$(nproc)``."""

    @property
    def place(self) -> str:
        """``train.sh:14``."""
        return f"{self.file}:{self.line}" if self.line else self.file


class File(Value, frozen=True, kw_only=True):
    """A file that is written or read: a path, its text, and whether it can be executed."""

    path: str
    text: str
    executable: bool = False


class Document(Protocol):
    """A file that was read."""

    @property
    def path(self) -> str:
        """As the user gave it."""

    @property
    def text(self) -> str:
        """As it was read."""

    def settings(self) -> Mapping[str, Setting]:
        """Everything that it sets, by dotted key (YAML, JSON, TOML) or by flag (scripts)."""

    def changed(self, edits: Mapping[str, object]) -> str:
        """The text with some keys set to other values, or taken out (None); everything else as it was.

        Errors: ``InputError`` where a key cannot be changed in place.
        """


class Around(Struct, frozen=True):
    """A document whose keys go by other names; what derives from it says by which."""

    inner: Document

    @property
    def path(self) -> str:
        """As the user gave it."""
        return self.inner.path

    @property
    def text(self) -> str:
        """As it was read."""
        return self.inner.text


class Inherited(Around, frozen=True):
    """A document that another one builds on, and that others may build on as well: it stays as it is."""

    heir: str
    """Path of the document where its keys are set to other values."""

    def settings(self) -> Mapping[str, Setting]:
        """Those of the document."""
        return self.inner.settings()

    def changed(self, edits: Mapping[str, object]) -> str:
        """The document with the edits."""
        return self.inner.changed(edits)


class Source(Value, frozen=True, kw_only=True):
    """What the files say, before it is known what it means."""

    documents: tuple[Document, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, Setting] = field(default_factory=dict)
    """Variables that the launch sets; the value is text, ``UNKNOWN``, or None where it is unset on purpose."""
    nodes: int | None = None
    devices_per_node: int | None = None
    program: str = ""
    """The script or module that is launched."""
    remarks: tuple[Message, ...] = ()
    """What was not understood."""
    beneath: Mapping[str, Setting] = field(default_factory=dict)
    """What holds where the files are silent: the values of a recipe that they start from, which no edit of theirs takes out."""

    @property
    def devices(self) -> int | None:
        """Processes that the launcher starts, where the files say it."""
        return None if self.nodes is None or self.devices_per_node is None else self.nodes * self.devices_per_node

    def setting(self, key: str) -> Setting | None:
        """What holds of a key: as the files set it, else what stands beneath them."""
        setting = self.settings.get(key)
        return self.beneath.get(key) if setting is None else setting

    def value(self, key: str, default: object = None) -> object:
        """The value of a key; the default where it is absent."""
        setting = self.setting(key)
        return default if setting is None else setting.value
