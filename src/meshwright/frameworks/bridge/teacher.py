"""Distillation: the teacher beside the model, whose fields are never the model's, and what the two must share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, place_of
from meshwright.frameworks.rules import Mistake

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

TEACHER, KNOWLEDGE = "model.teacher.", "model.kd_config."
SHARED = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "seq_length", "pipeline_dtype")
"""Fields in which Bridge wants both alike."""
_NAMED = ((re.compile(r"^\w*teacher\w*\.model\."), TEACHER), (re.compile(r"^\w*teacher\w*\.(?=\w+$)"), TEACHER),
          (re.compile(r"^(kd_config|\w*distill\w*)\."), KNOWLEDGE))
"""Variables of a Python recipe that become a part of the model -> where their fields stand."""
_SOURCE = "megatron/bridge/models/distillation_provider.py"


def taught(key: str) -> str:
    """A field of a teacher's own configuration as the field of the model that it becomes; any other key as it is.

    >>> taught("teacher_cfg.model.num_layers"), taught("model.num_layers")
    ('model.teacher.num_layers', 'model.num_layers')
    """
    return next((place + key[found.end() :] for name, place in _NAMED if (found := name.match(key))), key)


def distils(reading: Reading) -> bool:
    """Whether a program of its own makes the model a student: fields of a teacher stand there, or the program says so."""
    if {"--recipe", "--model"} & reading.source.settings.keys():
        return False  # run_recipe, whose recipes have no teacher
    return bool(_fields(reading)) or any("convert_to_distillation_provider" in each.text for each in reading.source.documents)


def _fields(reading: Reading) -> list[str]:
    return [key for key in reading.source.settings if key.startswith(TEACHER)]


def _differ(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = reading.source.settings
    for name in SHARED:
        own, theirs = settings.get(f"model.{name}"), settings.get(TEACHER + name)
        if own is not None and theirs is not None and own.value != theirs.value:
            yield at(theirs, own.value, attr=name, own=own.value)


def _chunks(reading: Reading, case: Case | None) -> Iterator[Values]:
    if distils(reading) and reading.layout is not None and reading.layout.virtual_stages > 1:
        key = "model.virtual_pipeline_model_parallel_size"
        yield {"value": reading.layout.virtual_stages, "expected": None, "path": place_of(reading, key, *_fields(reading))}


def _beside(reading: Reading, case: Case | None) -> Iterator[Values]:
    if distils(reading):
        yield {"path": place_of(reading, *_fields(reading))}


DISTILLATION = (
    Mistake("teacher-differs", "Student and teacher providers must have the same {attr}: {own} and {value}", _differ,
            source=f"{_SOURCE} __post_init__"),
    Mistake("teacher-chunks", "ModelOpt KD currently does not support virtual-pipeline parallel", _chunks,
            source=f"{_SOURCE} provide"),
    Mistake("teacher", "a teacher runs beside the model: its weights and its forward pass are not in the prediction", _beside,
            "warning", _SOURCE),
)
