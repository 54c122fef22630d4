"""Other ways to choose the next candidate, to be compared with: chance, and Optuna's samplers by ask and tell."""

from __future__ import annotations

import math
import random
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic

from meshwright.errors import Message, NoAnswerError
from meshwright.measure.chooser import Listed
from meshwright.measure.tuning.tuner import Candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.measure.outcome import Outcome

SAMPLERS = ("model", "tpe", "gp", "random")


def shuffled(candidates: Sequence[Candidate], seed: int) -> Listed[Candidate]:
    """Candidates by chance, the same for a seed."""
    return Listed(random.Random(seed).sample(candidates, len(candidates)))


class Optuna(Generic[Candidate]):
    """A sampler of Optuna over the candidates' knobs.

    What it proposes and is no candidate, or was tried, is the nearest one that was not. A run that failed counts as twice the
    slowest step seen. The space is the values that the candidates have.
    """

    def __init__(self, candidates: Sequence[Candidate], words: Sequence[Mapping[str, float]], sampler: str, seed: int) -> None:
        """Prepare a study.

        Errors:  ``NoAnswerError`` where Optuna is not installed.
        """
        require_optuna(sampler)
        optuna: Any = import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = optuna.samplers.TPESampler(seed=seed) if sampler == "tpe" else optuna.samplers.GPSampler(seed=seed)
        self._study: Any = optuna.create_study(direction="minimize", sampler=chosen)
        self._candidates, self._words = tuple(candidates), tuple(words)
        self._space = {
            name: optuna.distributions.CategoricalDistribution(sorted({each[name] for each in words}))
            if name in KINDS else optuna.distributions.FloatDistribution(*_ends(each[name] for each in words))
            for name in words[0] if len({each[name] for each in words}) > 1
        }
        self._left = dict(enumerate(self._candidates))
        self._place = {each.label: index for index, each in enumerate(self._candidates)}
        self._asked: dict[str, Any] = {}
        self._slowest = 0.0

    def ask(self) -> Candidate | None:
        """The candidate nearest to the study's proposal."""
        if not self._left:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask(self._space)
        index = min(self._left, key=lambda each: (self._distance(trial.params, self._words[each]), each))
        found = self._left[index]
        self.take(found)
        self._study.tell(trial, state=import_module("optuna").trial.TrialState.PRUNED, skip_if_finished=True)
        return found

    def take(self, candidate: Candidate) -> None:
        """It is run though nobody has asked for it now."""
        index = self._place[candidate.label]
        self._left.pop(index, None)
        self._asked[candidate.label] = {name: self._words[index][name] for name in self._space}

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """What the candidate's own knobs came to."""
        optuna: Any = import_module("optuna")
        if outcome.measured and outcome.step_s:
            self._slowest = max(self._slowest, outcome.step_s)
        step_s = outcome.step_s if outcome.measured and outcome.step_s else 2.0 * (self._slowest or 1.0)
        self._study.add_trial(optuna.trial.create_trial(
            params=self._asked[candidate.label], distributions=self._space, value=math.log(step_s)
        ))

    @property
    def enough(self) -> bool:
        """It has no rule to stop by."""
        return False

    @property
    def stopped(self) -> str:
        """It has no rule to stop by."""
        return ""

    def _distance(self, params: Mapping[str, float], words: Mapping[str, float]) -> float:
        return sum(abs(params[name] - words[name]) for name in self._space)


KINDS = ("sp", "zero", "recompute", "offload")
"""Knobs that are no sizes."""


def _ends(values: Iterable[float]) -> tuple[float, float]:
    every = list(values)
    return min(every), max(every)


def require_optuna(sampler: str) -> None:
    """Say clearly what is missing.

    Errors:  ``NoAnswerError``.
    """
    needed = ("optuna", "torch", "scipy") if sampler == "gp" else ("optuna",)
    if missing := [each for each in needed if find_spec(each) is None]:
        values = {"sampler": sampler, "missing": " and ".join(missing)}
        raise NoAnswerError([Message(
            "tune.optuna", "--sampler {sampler} needs {missing}: pip install 'meshwright[optuna]', or take --sampler model", values
        )])
