"""``meshwright episode``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.episode import EpisodeAnswer, EpisodeRequest, episode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright episode qwen3-8b --device h100-sxm --nodes 2 --framework verl-megatron --prompts 512 --responses 8 "
    "--prompt-tokens 512 --response-tokens 1500 --longest-response 8192 --updates 4"
)
FIELDS = (*EpisodeRequest.FIELDS, JSON)
REQUEST, ASK = EpisodeRequest, episode


def report(answer: EpisodeAnswer, _options: object) -> Iterator[Told]:
    """What is told."""
    from meshwright.report.episode import told_of

    return told_of(answer)
