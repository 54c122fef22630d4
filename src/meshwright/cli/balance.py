"""``meshwright balance``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.balance import BalanceAnswer, BalanceRequest, GuideAnswer, MemoriesAnswer, balance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EPILOG = """\
Example: meshwright balance layers.json --stages 16 --microbatches 64 --memory-mb 53000 --virtual-stages 1,2,3

Example: meshwright balance dry_runs.yaml --microbatches 64 --memory-mb 56000 (without both: what the peaks come to)

Example: meshwright balance --guide --stages 16 --layers 96 --recompute-kinds full,selective

Example: meshwright balance llama3.1-405b --device h100-sxm --nodes 64 --global-batch 512 --sequence 8192 --layout "tp8 pp16 mb1 sp"
"""
FIELDS = (*BalanceRequest.FIELDS, JSON)
REQUEST, ASK = BalanceRequest, balance


def report(answer: BalanceAnswer | GuideAnswer | MemoriesAnswer, _options: object) -> Iterator[RenderableType]:
    """Tables of the best answer, by how much nothing fits, or what dry runs say."""
    from meshwright.report.balance import balance_report, notes_report, overfull_report, ranking_report
    from meshwright.report.cost import saved_lines
    from meshwright.report.decomposition import decomposition_report, guide_report

    match answer:
        case GuideAnswer(proposal=proposal):
            yield from guide_report(proposal)
        case MemoriesAnswer(found=found, notes=notes):
            yield from notes_report(notes)
            yield from decomposition_report(found)
        case BalanceAnswer(question=question, solved=solved, saved=saved):
            if question.decomposition is not None:
                yield from decomposition_report(question.decomposition)
            yield from notes_report(question.notes)
            if solved.answers:
                yield from balance_report(solved.answers[0], question.name)
            else:
                problem, verdict = solved.overfull[0]
                yield from overfull_report(problem, verdict, question.name, question.units)
            yield from ranking_report(solved.answers, solved.refused)
            if saved:
                yield from saved_lines(saved)
