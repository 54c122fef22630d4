"""The advice of the five tuning guides as rules: ``data/guides.yaml``.

Every rule says where it stands (document, line, the words themselves), what it means, whether it is true in general, and which
predicate of ``meshwright.explain`` judges it for a case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from meshwright.catalog.sheets import data_path
from meshwright.readers.safe import load_yaml
from meshwright.readers.structure import make_converter, structure

Status = Literal["holds", "wrong", "holds-only-if"]
FILE = "guides.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One of the guides."""

    file: str
    title: str
    language: Literal["zh", "en"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Where a rule stands: a document by its number, a line from 1, and words of that line."""

    document: str
    line: int
    quote: str

    @property
    def place(self) -> str:
        """``003:56``."""
        return f"{self.document}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One piece of advice."""

    id: str
    missions: tuple[str, ...]
    passages: tuple[Passage, ...]
    says: str
    """The advice in our words."""
    status: Status
    """Whether it is true in general."""
    judge: str
    """Name of the predicate that judges it for a case."""
    condition: str = ""
    """When it holds, where it does not always."""
    correction: str = ""
    """What is true instead, where it is wrong."""
    cites: str = ""
    """The figure of the case that a plain correction is shown with."""

    @property
    def places(self) -> str:
        """``000:16, 001:21``."""
        return ", ".join(passage.place for passage in self.passages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guides:
    """The documents and their rules, in the order of the file."""

    documents: Mapping[str, Document]
    rules: tuple[Rule, ...]

    def rule(self, id: str) -> Rule:
        """The rule of an identifier; one that does not exist is our mistake."""
        found = next((rule for rule in self.rules if rule.id == id), None)
        assert found is not None, f"no rule {id!r} in {FILE}"
        return found


@cache
def guides() -> Guides:
    """Every rule of the guides, read once."""
    return structure(make_converter(), load_yaml(data_path(FILE)), Guides, where=FILE)


def markdown() -> str:
    """The rules as a page for people: what is said, where, and whether it is true."""
    book = guides()
    lines = [
        "# What the guides say",
        "",
        "Every rule of the five tuning guides, where it stands (document:line), and whether it is true in general.",
        "`meshwright explain` judges each for a case, with a figure. This page is written from `catalog/data/guides.yaml`:",
        "",
        '    python -c "from meshwright.catalog.guides import markdown; print(markdown(), end=str())" > docs/guides.md',
        "",
        "| document | file | guide |",
        "|---|---|---|",
        *(f"| {key} | `{each.file}` | {each.title} ({each.language}) |" for key, each in book.documents.items()),
        "",
        "| rule | stands in | says | status | when, or what is true instead |",
        "|---|---|---|---|---|",
        *(
            f"| {rule.id} | {rule.places} | {_cell(rule.says)} | {rule.status} | {_cell(rule.condition or rule.correction)} |"
            for rule in book.rules
        ),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
