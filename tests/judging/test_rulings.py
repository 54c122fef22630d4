"""What every rule of the guides comes to where times and memories of layouts are made up: the judges' own logic and words.

The golden file has a digest of verdict, figure and sentence for each rule and case. After a wanted change:
``PYTHONPATH=src:tests python tests/judging/test_rulings.py --update-golden``; ``--show`` prints all sentences, to be read.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.draws import together

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.catalog.guides import guides
from meshwright.domain.estimate import Term
from meshwright.domain.features import Features
from meshwright.domain.label import parse_layout
from meshwright.judging.alternatives import Alternative
from meshwright.judging.facts import Facts, Trial
from meshwright.judging.guides import judge_with
from meshwright.judging.judges import playbook, sharding
from meshwright.judging.losses import CAUSES
from meshwright.judging.questions import questions
from report.report_samples import estimate as made_up

GOLDEN = Path(__file__).parent / "golden" / "rulings.txt"
EVERYTHING = Features(name="everything", zero_stages=(0, 1, 2, 3), parameter_shards_with_pipeline=True)
CASES = {
    "pipeline": ("llama3-8b", "h100-sxm", 64, 256, 8192, "tp2 pp4 vp2 mb2 sp zero1", EVERYTHING),
    "data": ("llama3-8b", "h100-sxm", 8, 64, 4096, "mb1 zero1 recompute=selective", EVERYTHING),
    "full": ("llama2-13b", "a100-40g-sxm", 16, 512, 2048, "tp2 pp2 mb1 sp zero2 recompute=full", EVERYTHING),
    "mixture": ("qwen3-30b-a3b", "h100-sxm", 32, 512, 4096, "pp2 ep8 mb1 zero1", EVERYTHING),
    "large": ("llama2-70b", "a100-80g-sxm", 1024, 2048, 4096, "tp8 pp16 mb1 sp zero1", EVERYTHING),
    "long": ("llama3-8b", "h100-sxm", 64, 64, 131072, "tp4 cp8 mb1 sp zero3", EVERYTHING),
    "shards": (
        "llama3-8b",
        "h100-sxm",
        512,
        1024,
        4096,
        "tp8 mb16 sp zero3",
        replace(EVERYTHING, zero_stages=(0, 1), partial_sharding=False),
    ),
}
SEEDS = {"": 1, " slower": 2, " nothing fits": 3, " alike": 4}


class MadeUp(Facts):
    """Facts whose estimates follow from the label of a layout and a seed."""

    def __init__(self, case: Any, layout: Any, features: Any, seed: int) -> None:
        self.seed = seed
        super().__init__(case, layout, features, self._estimate(layout))

    def _estimate(self, layout: Any) -> Any:
        rng = random.Random(f"{self.seed} {layout}")
        factor = 1.0 + (0.3 if self.seed == 2 else 0.01 if self.seed == 4 else 0.1) * rng.random()
        found = made_up(layout, factor=factor, fits=self.seed != 3 and rng.random() < 0.8)
        terms = tuple(
            Term(name=name, value=factor * (12.0 if name == "ideal" else rng.random()), unit="s", formula="f") for name in CAUSES
        )
        reserved = found.memory_reserved_bytes * (1.0 + 0.5 * rng.random())
        return replace(
            found,
            terms=terms,
            memory_reserved_bytes=reserved,
            memory_peak_bytes=0.9 * reserved,
            bubble_ratio=0.3 * rng.random(),
            mfu_ratio=0.2 + 0.4 * rng.random(),
            linearity_ratio=0.8 + 0.2 * rng.random(),
        )

    @property
    def error_ratio(self) -> float:
        return 0.03

    @property
    def best(self) -> Any:  # type: ignore[override]
        rng, found = random.Random(self.seed), {}
        for name in questions(self.case, self.parameters):
            step = 15.0 * (1.0 + (0.3 if self.seed == 2 else 0.02) * (rng.random() - 0.2))
            fits = self.seed != 3 and rng.random() < 0.8
            if rng.random() < 0.85:
                found[name] = Alternative(
                    label=name, layout=self.layout, step_s=step, expected_step_s=step * (1.0 + 0.05 * rng.random() ** 2),
                    memory_reserved_bytes=6e10 * (1 + rng.random()), fits=fits,
                )
        return found

    def trial(self, layout: Any, case: Any = None) -> Any:
        return Trial(layout=layout, estimate=self._estimate(layout), refused_because=("refused",) if self.refusals(layout) else ())

    def trials(self, layouts: Any) -> Any:
        return [self.trial(layout) for layout in layouts]

    def refusals(self, layout: Any, case: Any = None) -> tuple[str, ...]:
        return ("refused",) if random.Random(f"{self.seed} no {layout}").random() < 0.2 and layout != self.layout else ()


def columns(case: Any, layouts: Any) -> Any:
    """Times and memories of layouts that nobody predicted."""
    rng = random.Random(len(layouts))
    times = np.array([10.0 + rng.random() for _ in layouts])
    return times, times, np.array([4e10 * (1.0 + rng.random()) for _ in layouts])


@cache
def rulings() -> dict[str, tuple[str, ...]]:
    """Rule -> what it comes to, case by case."""
    found: dict[str, tuple[str, ...]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "price_many", columns)
        patch.setattr(playbook, "climb", lambda case, features, start, start_expected_s: (start, 3))
        for model, device, devices, sequences, tokens, words, features in CASES.values():
            case = make_case(
                model, cluster_for(device, num_devices=devices), global_batch_sequences=sequences, sequence_tokens=tokens
            )
            layout = parse_layout(words, num_devices=devices, global_batch_sequences=sequences, model=case.model)
            for seed in SEEDS.values():
                facts = MadeUp(case, layout, features, seed)
                for rule in guides().rules:
                    judged = judge_with(rule, facts)
                    said = f"{judged.verdict} {judged.followed} {judged.figure.name} {judged.figure.value:.6g}: {judged.sentence}"
                    found[rule.id] = (*found.get(rule.id, ()), said)
    return found


def digest(said: str) -> str:
    return sha256(said.encode()).hexdigest()[:6]


@together("rule", [rule.id for rule in guides().rules])
def test_every_rule_comes_to_what_it_came_to(rule: str) -> None:
    rows = dict(line.split(": ") for line in GOLDEN.read_text(encoding="utf-8").splitlines())
    found = rulings()[rule]
    changed = [said for said, wanted in zip(found, rows[rule].split(), strict=True) if digest(said) != wanted]
    assert not changed, changed[0]


def test_made_up_cases_lead_to_every_verdict() -> None:
    verdicts = {said.split()[0] for row in rulings().values() for said in row}
    assert verdicts == {"holds", "not-followed", "fails", "wrong", "does-not-apply"}


if __name__ == "__main__" and "--update-golden" in sys.argv:
    GOLDEN.write_text("".join(f"{rule}: {' '.join(map(digest, row))}\n" for rule, row in rulings().items()), encoding="utf-8")
if __name__ == "__main__" and "--show" in sys.argv:
    print(*(f"{rule}: {said}" for rule, row in rulings().items() for said in row), sep="\n")
