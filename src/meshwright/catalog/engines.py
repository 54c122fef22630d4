"""Inference engines that generate samples beside a trainer: ``data/engines.yaml``."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from meshwright.catalog.sheets import data_path
from meshwright.domain.episode import Engine
from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import structure_shipped
from meshwright.value import Value


class EngineFigure(Value, frozen=True, kw_only=True):
    """A figure with its source."""

    value: float
    source: str


class EngineRecord(Value, frozen=True, kw_only=True):
    """A block of ``engines.yaml``."""

    memory_ratio: EngineFigure
    working_ratio: EngineFigure
    tensor_host_s: EngineFigure
    running: EngineFigure
    step_host_s: EngineFigure
    reduce_s: EngineFigure
    reduce_across_s: EngineFigure


@cache
def engine(name: str = "vllm") -> Engine:
    """An engine, a copy of the model on each device."""
    blocks = require_mapping(load_shipped(data_path("engines.yaml")), "engines.yaml")
    record = structure_shipped(blocks[name], EngineRecord, where=f"engines.yaml: {name}")
    values = {field.name: getattr(record, field.name).value for field in fields(record)}
    return Engine(tensor_parallel=1, **{**values, "running": int(values["running"])})
