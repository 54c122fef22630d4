"""A launch script as settings: the flags and overrides that its training program gets, and its environment.

``--flag value ...`` becomes ``--flag``; ``--flag=value`` too; ``section.key=value`` (Hydra, OmegaConf; also ``+`` or ``++`` in
front) becomes ``section.key``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from meshwright.documents.shell import ShellDocument, Word, parse_shell, spelled
from meshwright.documents.shell_launch import LAUNCHERS, MOST_COUNT
from meshwright.documents.source import UNKNOWN, Setting
from meshwright.errors import Message

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_COUNT = re.compile(r"([0-9]{1,100})(?::([0-9]{1,100}))?", re.ASCII)
"""A number, or an elastic range of them."""
_RESOLVED = frozenset({"auto", "gpu", "cpu", "xpu", "npu", "-1"})
"""What launchers count by themselves; -1 is how DeepSpeed says that nothing is said."""
_BLANK = re.compile(r"[<>{}$\[\]?*]|\.\.\.|\u2026|^[A-Z_]+$")
"""What stands in a template where a number is to come."""
_HEADERS = {"nodes": "nodes", "ntasks": "devices", "gpus": "devices", "ntasks-per-node": "devices", "gpus-per-node": "devices"}
_BEYOND = re.compile(r"[1-9][0-9]{7,}", re.ASCII)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][A-Za-z0-9_.@/-]*)=(.*)", re.DOTALL)


class LaunchDocument(Struct, frozen=True, kw_only=True):
    """A shell script that launches a training."""

    shell: ShellDocument
    remarks: tuple[Message, ...]

    @property
    def path(self) -> str:
        """As the user gave it."""
        return self.shell.path

    @property
    def text(self) -> str:
        """As it was read."""
        return self.shell.text

    @property
    def nodes(self) -> int | None:
        """Nodes, as the launcher says."""
        return self.shell.launch.nodes

    @property
    def devices_per_node(self) -> int | None:
        """Processes on a node, as the launcher says."""
        return self.shell.launch.devices_per_node

    @property
    def program(self) -> str:
        """The script or module that is launched."""
        program = self.shell.launch.program
        return program.text if program is not None else ""

    def settings(self) -> Mapping[str, Setting]:
        """Flags and overrides; of one that is given twice the last counts, as parsers have it."""
        return dict(self._settings())

    def environment(self) -> Mapping[str, Setting]:
        """Exported variables; None where one is unset on purpose."""
        return {
            name: Setting(key=name, value=None if word is None else _value(word), file=self.path, line=word.line if word else 0)
            for name, word in self.shell.environment.items()
        }

    def changed(self, edits: Mapping[str, object]) -> str:
        """The script with some flags or overrides set, added or (None) taken out, where their values stand."""
        from meshwright.documents.shell_edit import FlagEdit, replace_flags

        return replace_flags(self.shell, [FlagEdit(key=key, values=words_of(value, key)) for key, value in edits.items()])

    def _settings(self) -> Iterator[tuple[str, Setting]]:
        """Settings in the order of the words."""
        for key, words, line in flags(self.shell.launch.arguments):
            values = tuple(_value(word) for word in words)
            value: object = True if not values else values[0] if len(values) == 1 else values
            if UNKNOWN in values:
                value = UNKNOWN
            names = dict.fromkeys(spelled(name) for word in words for name in word.part.unknowns)
            yield key, Setting(key=key, value=value, file=self.path, line=line, hangs_on=tuple(names))


def words_of(value: object, key: str = "-") -> tuple[str, ...] | None:
    """The words behind a flag for a value: none for a switch, None to take it out; an override ``key`` takes one word."""
    if not key.startswith("-"):
        return None if value is None else (_override(value),)
    if value is None or value is False:
        return None
    if value is True:
        return ()
    return tuple(str(each) for each in value) if isinstance(value, (tuple, list)) else (str(value),)


def _override(value: object) -> str:
    """A value behind ``key=``: lists as YAML has them in one line."""
    return f"[{','.join(map(_override, value))}]" if isinstance(value, (tuple, list)) else str(value)


def flags(words: Sequence[Word]) -> Iterator[tuple[str, tuple[Word, ...], int]]:
    """Each flag or override of a command line: its name, its values, the line of its (first) value."""
    name, values, line = "", list[Word](), 0
    for word in words:
        text = word.text if word.known else word.part.plain
        head, equals, rest = text.partition("=")
        override = None if text.startswith("-") else _OVERRIDE.fullmatch(text)
        is_flag = bool(_FLAG.fullmatch(head))
        if is_flag or (override and not (name and not values)):
            if name:
                yield name, tuple(values), line
            name, values, line = "", [], word.line
            if override:
                yield override[1], (part(word, override[2]),), word.line
            elif equals:
                yield head, (part(word, rest),), word.line
            else:
                name = head
        elif name:
            line = line if values else word.line
            values.append(word)
    if name:
        yield name, tuple(values), line


def part(word: Word, text: str) -> Word:
    """The value within a word ``--flag=value``."""
    return Word(text=text, known=word.known, line=word.line, span=None, shared=word.shared, part=word.part)


def _value(word: Word) -> object:
    """The text of a word, or that it is not known."""
    return word.text if word.known else UNKNOWN


@lru_cache(maxsize=16)  # an edit, a check and what is read back ask for the same files
def parse_launch(text: str, *, path: str = "", beside: tuple[tuple[str, str], ...] = ()) -> LaunchDocument:
    """A launch script; nothing of it is run. ``beside``: path and text of the files that it may read in."""
    shell = parse_shell(text, path=path, files=dict(beside))
    return LaunchDocument(shell=shell, remarks=(*shell.remarks, *_odd_counts(shell)))


def _odd_counts(shell: ShellDocument) -> Iterator[Message]:
    """Numbers of nodes and devices that a launcher cannot start: none, below none, beyond all, or no number at all."""
    found = shell.found
    if found is None:
        return
    launcher = LAUNCHERS.get(found.launcher)
    if launcher is not None:
        for what, options in (("nodes", launcher.nodes), ("devices", (*launcher.per_node, *launcher.total))):
            for option in options:
                word = found.launcher_options.get(option)
                if word is not None and word.known and no_count(word.text):
                    name = option if launcher.by_environment else f"--{option}"
                    yield odd_count(name, word.text, what, f"{shell.path}:{word.line}")
    for option, what in _HEADERS.items():
        word = shell.batch_headers.get(option)
        if word is not None and _BEYOND.fullmatch(word.text):
            yield odd_count(f"#SBATCH --{option}", word.text, what, f"{shell.path}:{word.line}")


def odd_count(option: str, value: str, what: str, place: str) -> Message:
    """That a number of nodes or devices is none."""
    words = "{option} is {value}: a number of {what} from 1 to {most:,} is expected"
    return Message("launch.count", words, {"option": option, "value": value, "what": what, "most": MOST_COUNT}, place)


def no_count(text: str) -> bool:
    """Whether a launcher's option can be no count, whatever the launcher makes of words: blanks of templates are not meant.

    >>> [no_count(text) for text in ("0", "-2", "99999999", "two", "8", "1:4", "gpu", "-1", "<N>")]
    [True, True, True, True, False, False, False, False, False]
    """
    plain = _COUNT.fullmatch(text)
    if plain is not None:
        return not all(1 <= int(each) <= MOST_COUNT for each in plain.groups() if each)
    return bool(text) and text not in _RESOLVED and not text.startswith("gpu:") and not _BLANK.search(text)
