"""The advice of the five tuning guides as rules: ``data/guides.yaml``.

Every rule says where it stands (document, line, the words themselves), what it means, whether it is true in general, and which
predicate of ``meshwright.judging`` judges it for a case. The guides are other people's documents and not part of this repository,
so every sentence that is cited stands there too, and ``cited`` shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

from meshwright.catalog.sheets import data_path
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import structure_shipped
from meshwright.value import Value

Status = Literal["holds", "wrong", "holds-only-if"]
FILE = "guides.yaml"
_CITATION = re.compile(r"guide (\d{3}:\d+(?:, \d{3}:\d+)*)")


class Document(Value, frozen=True, kw_only=True):
    """One of the guides."""

    file: str
    title: str
    language: Literal["zh", "en"]


class Passage(Value, frozen=True, kw_only=True):
    """Where a rule stands: a document by its number, a line from 1, and words of that line."""

    document: str
    line: int
    quote: str

    @property
    def place(self) -> str:
        """``003:56``."""
        return f"{self.document}:{self.line}"


class Rule(Value, frozen=True, kw_only=True):
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


class Stop(Value, frozen=True, kw_only=True):
    """A step of the way on which a guide chooses a layout; ``meshwright.judging.walk`` goes it."""

    step: str
    """What is chosen, in words."""
    rule: str
    """Identifier of the rule that it follows."""
    choose: str
    """Name of the function that lists its candidates, the guide's first wish first."""
    take: str
    """Which of them is taken: the first ``legal`` one, the first that ``fits``, or the ``fastest`` that fits."""
    knobs: tuple[str, ...]
    """Words of a label that it sets."""
    experts: bool = False
    """Only where the model has experts."""


class Guides(Value, frozen=True, kw_only=True):
    """The documents and their rules, in the order of the file."""

    documents: Mapping[str, Document]
    rules: tuple[Rule, ...]
    passages: tuple[Passage, ...] = ()
    """Cited by checks of files, beside those of the rules."""
    walk: tuple[Stop, ...] = ()
    """How the first guide would choose a layout, step by step."""

    def rule(self, id: str) -> Rule:
        """The rule of an identifier; one that does not exist is our mistake."""
        found = next((rule for rule in self.rules if rule.id == id), None)
        assert found is not None, f"no rule {id!r} in {FILE}"
        return found


    def passage(self, place: str, *rules: str) -> Passage:
        """The passage of ``003:66``; of several that stand in one line that of a rule."""
        preferred = [passage for rule in rules for passage in self.rule(rule).passages]
        every = (*preferred, *self.passages, *(each for one in self.rules for each in one.passages))
        found = next((each for each in every if each.place == place), None)
        assert found is not None, f"nothing is quoted from {place} in {FILE}"
        return found


@cache
def guides() -> Guides:
    """Every rule of the guides, read once."""
    return structure_shipped(load_shipped(data_path(FILE)), Guides, where=FILE)


def cited(source: str, *rules: str) -> str:
    """A source for people: where it names places of guides, their titles and sentences stand there; the rest stays as it is.

    Of one guide in two languages the English sentence is shown. ``rules``: whose words are meant where several stand in one line.

    >>> cited("prediction; guide 003:66", "megatron.accumulation-flag")
    'prediction; guide 003 (Megatron-LM throughput guide), line 66: "--gradient-accumulation-steps 32"'
    """
    book = guides()
    return _CITATION.sub(lambda match: _shown(book, [book.passage(each, *rules) for each in match[1].split(", ")]), source)


def lines_of(places: str) -> str:
    """Places of guides as titles and lines, without their words; of one guide in two languages the English one.

    >>> lines_of("000:16, 001:21")
    'ChatLearn tuning guide, line 21'
    """
    book = guides()
    named = [(book.documents[document], line) for document, line in (each.split(":") for each in places.split(", "))]
    english = {document.title for document, _ in named if document.language == "en"}
    lines: dict[str, list[str]] = {}
    for document, line in named:
        if document.language == "en" or document.title not in english:
            lines.setdefault(document.title, []).append(line)
    return "; ".join(f"{title}, line{'s' if len(each) > 1 else ''} {', '.join(each)}" for title, each in lines.items())


def _shown(book: Guides, passages: Sequence[Passage]) -> str:
    """Guide by guide, sentence by sentence."""
    documents = [book.documents[each.document] for each in passages]
    english = {each.title for each in documents if each.language == "en"}
    lines: dict[str, list[str]] = {}
    for each, document in zip(passages, documents, strict=True):
        if document.language == "en" or document.title not in english:
            lines.setdefault(f"guide {each.document} ({document.title})", []).append(f'line {each.line}: "{each.quote}"')
    return "; ".join(f"{guide}, {'; '.join(sentences)}" for guide, sentences in lines.items())


def markdown() -> str:
    """The rules as a page for people: what is said, where, and whether it is true."""
    book = guides()
    lines = [
        "# What the guides say",
        "",
        "Every rule of the five tuning guides, where it stands (document:line), and whether it is true in general; below, the",
        "sentences themselves. `meshwright explain` judges each for a case, with a figure. The guides belong to their authors and",
        "are not part of this repository. This page is written from `src/meshwright/catalog/data/guides.yaml`:",
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
        "",
        "## The way of the ChatLearn guide",
        "",
        "`meshwright plan --guided` goes it, each step beside the best plan; of the candidates of a step the first is taken that",
        "is legal or that fits, or the fastest that fits.",
        "",
        "| step | by the rule | takes | sets |",
        "|---|---|---|---|",
        *(f"| {stop.step} | {stop.rule} | {stop.take} | {' '.join(stop.knobs)} |" for stop in book.walk),
        "",
        "## The sentences",
        "",
        "| place | words |",
        "|---|---|",
        *(f"| {place} | {_cell(quotes)} |" for place, quotes in _sentences(book).items()),
    ]
    return "\n".join(lines) + "\n"


def _sentences(book: Guides) -> Mapping[str, str]:
    """Place -> what is quoted from there, in the order of the guides."""
    found: dict[tuple[str, int], list[str]] = {}
    for each in (*book.passages, *(each for rule in book.rules for each in rule.passages)):
        quotes = found.setdefault((each.document, each.line), [])
        if each.quote not in quotes:
            quotes.append(each.quote)
    return {f"{document}:{line}": " ... ".join(found[document, line]) for document, line in sorted(found)}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
