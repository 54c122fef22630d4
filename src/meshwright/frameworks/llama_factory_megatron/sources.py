"""LLaMA-Factory's files with what the text of ``extra_config`` holds as keys of their own, and all of it as fields of Bridge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import Around, Setting, Source
from meshwright.errors import InputError
from meshwright.frameworks.llama_factory_hf.sources import open_files as open_all
from meshwright.readers.safe import parse_json

if TYPE_CHECKING:
    from meshwright.frameworks.base import File

TEXT = "extra_config"
EXTRA = f"{TEXT}."
"""What stands before a field of Bridge that no argument names."""
FIELDS: Mapping[str, str] = {
    **{name: f"model.{name}" for name in (
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
        "virtual_pipeline_model_parallel_size", "sequence_parallel", "recompute_granularity", "recompute_method",
        "recompute_num_layers", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
        "moe_token_dispatcher_type", "cross_entropy_loss_fusion",
    )},
    **{name: f"ddp.{name}" for name in ("use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce")},
    "per_device_train_batch_size": "train.micro_batch_size", "mixed_precision": "mixed_precision",
}
"""Argument of LLaMA-Factory -> field of Bridge that it sets. Source: train/megatron_bridge/config_builder.py."""
DEFAULTS: Mapping[str, object] = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "expert_model_parallel_size": 1,
    "sequence_parallel": False, "use_distributed_optimizer": True, "overlap_param_gather": True, "overlap_grad_reduce": True,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "mixed_precision": "bf16_mixed", "cutoff_len": 2048,
}
"""Arguments that decide a layout where nobody says them."""


class Opened(Around, frozen=True):
    """A document whose ``extra_config`` is open."""

    def settings(self) -> Mapping[str, Setting]:
        """Those of the document, and the fields that the text of ``extra_config`` names."""
        found = dict(self.inner.settings())
        setting = found.get(TEXT)
        more = {} if setting is None else {
            EXTRA + key: replace(setting, key=EXTRA + key, value=value) for key, value in opened(setting.value).items()
        }
        return found | more

    def changed(self, edits: Mapping[str, object]) -> str:
        """The document with the edits; the text of ``extra_config`` is written anew where a field in it changes."""
        own = {key: value for key, value in edits.items() if not key.startswith(EXTRA)}
        inside = {key.removeprefix(EXTRA): value for key, value in edits.items() if key.startswith(EXTRA)}
        if inside:
            setting = self.inner.settings().get(TEXT)
            kept = dict(opened(setting.value)) if setting is not None else {}
            kept = {key: value for key, value in (kept | inside).items() if value is not None}
            own[TEXT] = json.dumps(kept) if kept else None
        return self.inner.changed(own)


def opened(value: object) -> Mapping[str, object]:
    """The fields of an ``extra_config``: JSON in a text, or a mapping; none of a path or of what is no JSON."""
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    if isinstance(value, str) and value.strip().startswith("{"):
        with suppress(InputError):
            found = parse_json(value)
            return {str(key): each for key, each in found.items()} if isinstance(found, Mapping) else {}
    return {}


def open_files(files: Sequence[File]) -> Source:
    """The files as LLaMA-Factory merges them."""
    source = open_all(files)
    documents = tuple(map(Opened, source.documents))
    settings = {key: setting for document in documents for key, setting in document.settings().items()}
    return replace(source, documents=documents, settings=settings)


def as_bridge(source: Source) -> Source:
    """The settings that decide a layout under Bridge's names: arguments with their defaults, then what ``extra_config`` sets."""
    place = next(iter(source.settings.values()), None)
    found: dict[str, Setting] = {}
    for name, field in FIELDS.items():
        setting = source.settings.get(name)
        if setting is not None and setting.value is not None:
            found[field] = replace(setting, key=field)
        elif name in DEFAULTS:
            found[field] = Setting(key=field, value=DEFAULTS[name], file=place.file if place else "")
    extra = {
        key.removeprefix(EXTRA): replace(setting, key=key.removeprefix(EXTRA))
        for key, setting in source.settings.items() if key.startswith(EXTRA)
    }
    return replace(source, settings=found | extra)
