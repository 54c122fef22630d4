"""``meshwright pack``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.pack import PackAnswer, PackRequest, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = """\
Example: meshwright pack lengths.txt --max-tokens 8192 --data-parallel 4

Example: meshwright pack --distribution lognormal:median=1500,sigma=0.8,max=8192,n=2048 --model qwen2.5-7b --device h100-sxm \
--nodes 1 --task sft --picture cap.svg
"""
FIELDS = (*PackRequest.FIELDS, JSON)
REQUEST, ASK = PackRequest, pack


def report(answer: PackAnswer, _options: object) -> Iterator[Told]:
    """What is told."""
    from meshwright.report.pack import told_of

    return told_of(answer)
