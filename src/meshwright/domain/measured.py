"""What a profile measured on a cluster: it stands above priors and calibrations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias, get_args

from msgspec import field

from meshwright.domain.calibration import Calibration, Constants, Key, Move, Tile, moves
from meshwright.value import Value

Operation: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Direction: TypeAlias = Literal["forward", "input", "weight"]


class Timed(Value, frozen=True, kw_only=True):
    """Anything that was timed beside its formula."""

    seconds: float
    formula_s: float
    """What the cost model says of it with the figures and constants of the same file."""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.seconds / self.formula_s


class TimedProduct(Timed, frozen=True, kw_only=True):
    """One matrix product (rows, inner) x (inner, columns) of a linear layer, in one direction."""

    rows: int
    columns: int
    inner: int
    dtype: str
    direction: Direction

    @property
    def shape(self) -> tuple[int, ...]:
        """What decides which others are near."""
        return (self.rows, self.columns, self.inner)


class TimedCore(Timed, frozen=True, kw_only=True):
    """One causal attention core: ``groups`` heads of all sequences, each over ``tokens`` and ``head_dim`` wide."""

    groups: int
    tokens: int
    head_dim: int
    dtype: str
    direction: Literal["forward", "backward"]

    @property
    def shape(self) -> tuple[int, ...]:
        """What decides which others are near."""
        return (self.groups, self.tokens, self.head_dim)


class TimedCollective(Timed, frozen=True, kw_only=True):
    """One collective of a group; ``payload_bytes`` of the whole tensor: gathered, or before it is scattered or reduced."""

    operation: Operation
    ranks: int
    payload_bytes: int


class Measured(Value, frozen=True, kw_only=True):
    """Figures of one cluster that were measured on it."""

    name: str
    """Of the cluster that they are of."""
    version: str
    """The date of the measurement."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Name of a constant -> its measured value, in base units."""
    tiles: tuple[Tile, ...] = ()
    """Tiles of matrix products; none: those of the device's family."""
    pass_speeds: Mapping[str, float] = field(default_factory=dict)
    """Kind of memory-bound pass -> its speed relative to ``memory_ratio``."""
    products: tuple[TimedProduct, ...] = ()
    """Empty where correcting other products by these does not make them better."""
    cores: tuple[TimedCore, ...] = ()
    """Attention cores; empty as products are."""
    scale_up: tuple[TimedCollective, ...] = ()
    """Collectives inside a scale-up domain."""
    network: tuple[TimedCollective, ...] = ()
    """Collectives of groups that span several."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Name of a constant, or ``pass_speeds.KIND`` -> where its value comes from."""

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"


MEASURED = "measured"
"""What moved a constant that a profile of the cluster measured."""


def with_measured(calibration: Calibration, prior: Constants, measured: Measured, key: Key) -> Calibration:
    """The calibration with what was measured on this very cluster instead of what was fitted or assumed.

    ``fitted`` is true then: figures of this machine stand behind it.
    """
    base = calibration.constants
    constants = replace(
        base, tiles=measured.tiles or base.tiles, pass_speeds=dict(measured.pass_speeds),
        **measured.constants,  # type: ignore[arg-type]
    )
    before = calibration.moved or moves(prior, base, {}, key)
    after = [_measured(each, measured) if each.name in measured.constants else each for each in before]
    speeds = [
        _measured(Move(name=f"pass_speeds.{kind}", prior=1.0, value=1.0, offsets={}), measured) for kind in measured.pass_speeds
    ]
    return replace(calibration, constants=constants, fitted=True, moved=(*after, *speeds), measured=measured.label)


def _measured(move: Move, measured: Measured) -> Move:
    name = move.name.removeprefix("pass_speeds.")
    value = measured.constants[name] if name == move.name else measured.pass_speeds[name]
    return replace(move, value=value, offsets={MEASURED: math.log(value / move.prior)}, source=measured.sources.get(move.name, ""))
