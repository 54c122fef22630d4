"""Command lines against the real catalogue and cost model, with a small search in place of the real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests import searches

from meshwright.cli import main
from meshwright.domain.estimate import Fits, Infeasible, Unmet
from meshwright.domain.label import label, parse_layout
from meshwright.search.result import Comparison, PlanResult, RankedPlan


@pytest.fixture(autouse=True)
def _searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches.remember(monkeypatch)


@dataclass(frozen=True)
class Answer:
    """What one command line gave."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of standard error."""
        return self.err.splitlines()

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def call(*arguments: str) -> Answer:
        status = main(list(arguments))
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        return Answer(status, captured.out, captured.err)

    return call


@dataclass
class FakeSearch:
    """Records what it was asked, and ranks two layouts, or none."""

    fits: bool = True
    asked: Any = None

    def plan(
        self, case: Any, features: Any, options: Any, progress: Any = None, runner: Any = None, **_: Any
    ) -> PlanResult:
        from meshwright.estimate import estimate
        from meshwright.estimate.overlap import overlap_for

        self.asked = (case, features, options)
        batch, world = case.batch.global_batch_sequences, case.cluster.num_devices
        plans = []
        for rank, text in enumerate(("tp2 mb1 sp zero1", "tp4 mb1 sp zero1"), start=1):
            layout = parse_layout(
                text, num_devices=world, global_batch_sequences=batch, overlap=overlap_for(case)
            )
            plans.append(
                RankedPlan(rank=rank, label=label(layout), layout=layout, estimate=estimate(case, layout),
                           reasons=("because",), group=0)
            )
        unmet = Unmet(constraint="memory", demand=9e10, bound=8e10, unit="B", terms={"all": 9e10}, levers=("buy more",))
        return PlanResult(
            legal=10, evaluated=8, bounded=2, fitting=2 * self.fits, rejected={"tp": 3}, search_s=0.5,
            plans=tuple(plans) if self.fits else (), pareto=(), verdict=Fits(headroom_bytes=1.0) if self.fits else
            Infeasible(unmet=(unmet,)), used_devices=world, idle_devices=0,
        )

    def compare(self, case: Any, features: Any, result: PlanResult, layout: Any, options: Any, **_: Any) -> Comparison:
        from meshwright.estimate import estimate

        return Comparison(label=label(layout), estimate=estimate(case, layout), refused_because=(), rank=2,
                          winner=result.plans[0], needed=("luck",))


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> FakeSearch:
    fake = FakeSearch()
    module = sys.modules.get("meshwright.search") or __import__("meshwright.search", fromlist=["search"])
    monkeypatch.setattr(module, "plan", fake.plan, raising=False)
    monkeypatch.setattr(module, "compare", fake.compare, raising=False)
    return fake
