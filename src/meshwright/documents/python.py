"""A Python script that configures a training, by its syntax tree; nothing of it is run.

``cfg.model.tensor_model_parallel_size = 8`` is the key ``model.tensor_model_parallel_size``: the name of the variable is dropped.
Keyword arguments count as attributes of what a call makes: ``cfg = Container(train=Training(batch=8))`` is ``train.batch``, also
where the inner object was given a name first, and ``cfg = recipe(tp=2)`` is ``tp``.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.documents.python_syntax import Reader, Span, Written
from meshwright.documents.source import NOTHING, Setting
from meshwright.errors import Message, fault
from meshwright.readers.safe import refuse_long_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonDocument:
    """A Python file."""

    path: str
    text: str
    written: tuple[Written, ...] = field(repr=False)
    root: str = ""
    """The variable that statements assign to, for new keys."""

    def settings(self) -> Mapping[str, Setting]:
        """Values by dotted key; of one that is set twice the last counts, as when the script runs."""
        return {each.key: Setting(key=each.key, value=each.value, file=self.path, line=each.line) for each in self.written}

    def changed(self, edits: Mapping[str, object]) -> str:
        """The script with some values exchanged, added behind the last assignment, or taken out (None)."""
        document = self
        for key, value in edits.items():
            text = document._removed(key) if value is None else document._set(key, value)
            document, _ = parse_python(text, path=self.path)
        return document.text

    def _set(self, key: str, value: object) -> str:
        """The text with one key set."""
        found = [each for each in self.written if each.key == key]
        if found:
            return self._spliced(found[-1].span, repr(_plain(value)))
        statements = [each for each in self.written if each.statement]
        if not statements or not self.root:
            raise fault(
                "edit.python",
                "{key} stands nowhere in the script, and no assignment shows where to add it",
                path=self.path,
                key=key,
            )
        section = key.rpartition(".")[0]
        behind = [each for each in statements if each.key.rpartition(".")[0] == section] or statements
        data, end = self.text.encode(), behind[-1].whole[1]
        start = data.rfind(b"\n", 0, behind[-1].whole[0]) + 1
        indent = data[start : behind[-1].whole[0]].decode()
        line_end = data.find(b"\n", end)
        at = len(data) if line_end < 0 else line_end
        return (data[:at] + f"\n{indent}{self.root}.{key} = {_plain(value)!r}".encode() + data[at:]).decode()

    def _removed(self, key: str) -> str:
        """The text without a key."""
        text = self.text
        for each in reversed([each for each in self.written if each.key == key]):
            data = text.encode()
            start, end = each.whole
            if each.statement:
                first, last = data.rfind(b"\n", 0, start) + 1, data.find(b"\n", end)
                last = len(data) if last < 0 else last + 1
                if data[first:start].strip() or b";" in data[end:last].split(b"#")[0]:
                    raise fault("edit.python-line", "{key} (line {line}) shares its line with others: change it by hand",
                                path=self.path, key=key, line=each.line)
                text = (data[:first] + data[last:]).decode()
            else:
                while end < len(data) and data[end : end + 1].isspace():
                    end += 1
                if data[end : end + 1] == b",":
                    end += 1
                    while data[end : end + 1] in (b" ", b"\t"):
                        end += 1
                    line = data.rfind(b"\n", 0, start) + 1
                    if not data[line:start].strip() and data[end : end + 1] == b"\n":
                        start, end = line, end + 1
                text = (data[:start] + data[end:]).decode()
        return text

    def _spliced(self, span: Span, words: str) -> str:
        data = self.text.encode()
        return (data[: span[0]] + words.encode() + data[span[1] :]).decode()


def _plain(value: object) -> object:
    """Lists for tuples, so that a value is written as configuration has it."""
    return None if value is NOTHING else [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def parse_python(text: str, *, path: str = "") -> tuple[PythonDocument, tuple[Message, ...]]:
    """A script as a document, with remarks on what its syntax tree does not decide.

    Errors: ``InputError`` where it is no Python.
    """
    refuse_long_numbers(text, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise fault("python.malformed", "not Python: {reason}", path=path, reason=" ".join(str(error).split())) from None
    reader = Reader(text=text, path=path)
    try:
        reader.read(tree)
    except RecursionError:
        raise fault("python.depth", "nested too deeply", path=path) from None
    return PythonDocument(path=path, text=text, written=tuple(reader.keys()), root=reader.root()), tuple(reader.remarks)
