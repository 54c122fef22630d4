"""Rows of a mixed-integer programme, and HiGHS to solve them."""

from __future__ import annotations

from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Expression = dict[int, float]
"""Variable -> coefficient."""


class Solution(Struct, frozen=True, kw_only=True, eq=False):
    """What HiGHS returned."""

    values: NDArray[np.float64] | None
    objective: float
    bound: float
    infeasible: bool


class Rows(Struct):
    """Variables with their ranges, rows ``low <= sum a x <= high``, and a cost to minimise; None is unbounded."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    cost: dict[int, float] = field(default_factory=dict)
    rows: list[tuple[Expression, float | None, float | None]] = field(default_factory=list)

    def variable(self, low: float, high: float | None, *, integer: bool = False) -> int:
        """A new variable's index."""
        self.low.append(low)
        self.high.append(np.inf if high is None else high)
        self.integer.append(integer)
        return len(self.low) - 1

    def add(self, row: Expression, low: float | None, high: float | None) -> None:
        """One more row."""
        self.rows.append((row, low, high))

    def solve(
        self, time_limit_s: float, *, gap_ratio: float = 0.0, start: Mapping[int, float] | None = None, work: int | None = None
    ) -> Solution:
        """Minimise on one core.

        ``work``: how often the solver looks whether to go on, some ten times a node, until it is told to end: the same on every
        machine.

        Holds: deterministic unless the time limit ends it; the bound is the solver's own, for the rows as they are given.
        """
        import highspy

        solver = _solver()
        for option, value in (
            ("output_flag", False), ("threads", 1), ("random_seed", 0), ("time_limit", max(time_limit_s, 0.01)),
            ("mip_rel_gap", gap_ratio), ("mip_abs_gap", 0.0),
        ):
            solver.setOptionValue(option, value)
        solver.passModel(self._model(highspy))
        if start is not None:
            columns = np.array(list(start), dtype=np.int32)
            solver.setSolution(len(columns), columns, np.array(list(start.values()), dtype=np.float64))
        if work is not None:
            looks = count(1)
            solver.cbMipInterrupt += lambda event: event.interrupt() if next(looks) > work else None
        _run(solver)
        status, info = solver.getModelStatus(), solver.getInfo()
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        return Solution(
            values=np.array(solver.getSolution().col_value) if feasible else None,
            objective=float(info.objective_function_value) if feasible else float("inf"),
            bound=float(info.mip_dual_bound), infeasible=status == highspy.HighsModelStatus.kInfeasible,
        )

    def _model(self, highspy: Any) -> Any:
        """The rows as HiGHS takes them."""
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.low), len(self.rows)
        model.col_lower_, model.col_upper_ = np.array(self.low), np.array(self.high)
        cost = np.zeros(len(self.low))
        cost[list(self.cost)] = list(self.cost.values())
        model.col_cost_ = cost
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in self.integer]
        model.row_lower_ = np.array([-np.inf if low is None else low for _, low, _ in self.rows])
        model.row_upper_ = np.array([np.inf if high is None else high for _, _, high in self.rows])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _, _ in self.rows)])
        model.a_matrix_.index_ = np.array([column for row, _, _ in self.rows for column in row], dtype=np.int32)
        model.a_matrix_.value_ = np.array([value for row, _, _ in self.rows for value in row.values()])
        return model


def _solver() -> Any:
    """A solver that prints nothing: that of 1.16 does so in its constructor, before any option can be set."""
    import highspy

    class Silent(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()  # type: ignore[no-untyped-call]

    return Silent()  # type: ignore[no-untyped-call]


def _run(solver: Any) -> None:
    """In a thread of its own, where the solver keeps no interrupt from being heard; what it still computes then is nobody's."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            solver.run()
        except Exception as error:
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
