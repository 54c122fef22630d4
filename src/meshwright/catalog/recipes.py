"""Precision recipes and optimizers by name: ``data/precisions.yaml`` and ``data/optimizers.yaml``."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.sheets import Names, data_path
from meshwright.domain.training import Optimizer, Precision
from meshwright.errors import fault
from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import structure_shipped
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0}


class OptimizerRecord(Value, frozen=True, kw_only=True):
    """A block of ``optimizers.yaml``."""

    state_bytes: float
    source: str


@cache
def _blocks(file: str) -> Mapping[str, object]:
    return require_mapping(load_shipped(data_path(file)), file)


def precisions() -> tuple[str, ...]:
    """Names of the precision recipes."""
    return tuple(sorted(_blocks("precisions.yaml")))


@cache
def precision(name: str, gradient_dtype: str | None = None) -> Precision:
    """A precision recipe, its gradients in FP32 unless BF16 is asked for."""
    canonical = Names("precision", dict.fromkeys(precisions(), ())).resolve(name)
    block = require_mapping(_blocks("precisions.yaml")[canonical], f"precisions.yaml: {canonical}")
    recipe = structure_shipped({"name": canonical, **block}, Precision, where=f"precisions.yaml: {canonical}")
    if gradient_dtype is None:
        return recipe
    if gradient_dtype not in GRADIENT_BYTES:
        raise fault(
            "precision.gradient", "gradient dtype {dtype!r} is none of {known}",
            dtype=gradient_dtype, known=", ".join(GRADIENT_BYTES),
        )
    return replace(recipe, gradient_bytes=GRADIENT_BYTES[gradient_dtype])


def optimizers() -> tuple[str, ...]:
    """Names of the optimizers."""
    return tuple(sorted(_blocks("optimizers.yaml")))


@cache
def optimizer(name: str) -> Optimizer:
    """An optimizer by name."""
    canonical = Names("optimizer", dict.fromkeys(optimizers(), ())).resolve(name)
    where = f"optimizers.yaml: {canonical}"
    record = structure_shipped(_blocks("optimizers.yaml")[canonical], OptimizerRecord, where=where)
    return Optimizer(name=canonical, state_bytes=record.state_bytes)
