"""``meshwright balance``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.balance import BalanceAnswer, BalanceRequest, GuideAnswer, MemoriesAnswer, balance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = """\
Example: meshwright balance layers.json --stages 16 --microbatches 64 --memory-mb 53000 --virtual-stages 1,2,3

Example: meshwright balance dry_runs.yaml --microbatches 64 --memory-mb 56000 (without both: what the peaks come to)

Example: meshwright balance --guide --stages 16 --layers 96 --recompute-kinds full,selective

Example: meshwright balance llama3.1-405b --device h100-sxm --nodes 64 --global-batch 512 --sequence 8192 --layout "tp8 pp16 mb1 sp"
"""
FIELDS = (*BalanceRequest.FIELDS, JSON)
REQUEST, ASK = BalanceRequest, balance


def report(answer: BalanceAnswer | GuideAnswer | MemoriesAnswer, _options: object) -> Iterator[Told]:
    """What is told."""
    from meshwright.report.balance import told_of

    return told_of(answer)
