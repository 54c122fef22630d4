"""``meshwright catalog``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.catalog import (
    CatalogAnswer,
    CatalogRequest,
    EntriesAnswer,
    EntryAnswer,
    NearestAnswer,
    RunsAnswer,
    catalog,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright catalog devices h100-sxm, "
    "or meshwright catalog runs --near llama3-70b --device h100-sxm --nodes 8 --sequence 8192"
)
FIELDS = (*CatalogRequest.FIELDS, JSON)
REQUEST, ASK = CatalogRequest, catalog


def report(answer: CatalogAnswer, _options: object) -> Iterator[Told]:
    """A table of entries, one entry in full, or published runs."""
    match answer:
        case EntriesAnswer(kind=kind, entries=entries):
            from meshwright.report.entries import words
            from meshwright.report.facts import name_list

            yield from name_list(kind, [words(kind, each) for each in entries])
        case EntryAnswer(kind="runs", name=name, facts=facts):
            from meshwright.report.facts import entry

            yield from entry("run", name, {key: value for key, value in facts.items() if value is not None}, {})
        case EntryAnswer(kind=kind, name=name, facts=facts, sources=sources):
            from meshwright.report.entries import without_samples
            from meshwright.report.facts import entry

            yield from entry(kind.removesuffix("s"), name, without_samples(facts), sources)
        case RunsAnswer(cells=cells, limit=limit):
            from meshwright.report.runs import attempts_list

            yield from attempts_list(cells, limit)
        case NearestAnswer(found=found, total=total):
            from meshwright.report.runs import nearest_list

            yield from nearest_list(found, total)
