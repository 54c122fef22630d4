"""Plans drawn for verdicts: each feature of the framework in turn; illegal ones, and legal ones with a word changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle

from benchmarks.asked import Row, case_of, files_of, fingerprint, layout_of
from meshwright.domain.label import label
from meshwright.errors import InputError
from meshwright.frameworks import framework
from meshwright.testing.plans import FEATURES, draw_layout, is_legal, offered

MODELS = ("llama3-8b", "llama3-70b", "llama3.1-405b", "llama2-7b", "qwen2.5-7b", "qwen2.5-3b", "qwen3-8b", "qwen3-30b-a3b",
          "mixtral-8x7b", "deepseek-v3", "moonlight-16b-a3b", "gpt-oss-120b", "glm4.5-air", "gpt3-175b", "mistral-7b")
"""Models with and without a recipe, dense and mixtures."""
SIZES = ((16, 64, 2048), (64, 256, 4096), (48, 96, 2048), (128, 512, 8192))
"""Devices, sequences of a step, tokens of a sequence."""
GRADIENTS = ("fp32", "fp32", "fp32", "bf16")
TRIES = 500
"""Draws for each feature before the next one has its turn."""


def drawn(name: str, rng: random.Random, *, legal: bool) -> Iterator[Row]:
    """Plans of every sort, without end: those that limits allow, or those that they do not.

    Of the legal ones every other is of any kind, the others have each feature that the framework offers in turn.
    """
    features = framework(name).features
    sorts = cycle([sort for feature in offered(features) for sort in (None, feature)] if legal else [None])
    tasks = (features.tasks[0], *features.tasks)
    for sort in sorts:
        for _ in range(TRIES):
            if (row := _drawn(name, rng, tasks, sort, legal=legal)) is not None:
                yield row
                break


def _drawn(name: str, rng: random.Random, tasks: Sequence[str], feature: str | None, *, legal: bool) -> Row | None:
    """One draw, or None where it is not of the sort."""
    there, (devices, batch, sequence) = framework(name), rng.choice(SIZES)
    row = Row(
        asked="plan" if legal else "refused", model=rng.choice(MODELS), task=rng.choice(tasks), devices=devices, batch=batch,
        gradients=rng.choice(GRADIENTS), sequence=sequence, layout="", files="", accepted=False,
    )
    try:
        case = case_of(name, row)
        row = replace(row, layout=label(draw_layout(case, there.features, rng.choice, feature=feature)))
        layout = layout_of(name, row, case)  # as its label says it
        if is_legal(there, case, layout) != legal or (feature is not None and not FEATURES[feature](layout)):
            return None
        return replace(row, files=fingerprint(files_of(name, row)))
    except (InputError, AssertionError, LookupError, ValueError, TypeError, ArithmeticError):
        return None  # what no key says


def worded(name: str, rng: random.Random, words_for: Callable[[Row, str], Sequence[str]]) -> Iterator[Row]:
    """Legal plans with one change, each change in turn."""
    seen: dict[str, int] = {}
    for row in drawn(name, rng, legal=True):
        script = "\n".join(file.text for file in files_of(name, row) if file.executable)
        choices = sorted(words_for(row, script), key=lambda words: (seen.get(_kind(words), 0), words))
        if choices:
            seen[_kind(choices[0])] = seen.get(_kind(choices[0]), 0) + 1
            found = replace(row, asked="refused", words=choices[0])
            yield replace(found, files=fingerprint(files_of(name, found)))


def _kind(words: str) -> str:
    """The key of a change."""
    return words.replace("model.transformer.", "model.").partition("=")[0]
