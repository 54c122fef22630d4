"""Megatron-Bridge's files as one source: Python recipes, YAML overrides and the words of a command line, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from meshwright.documents.naming import started
from meshwright.documents.opening import PYTHON, is_script, open_source
from meshwright.documents.overrides import OverrideDocument
from meshwright.documents.source import NOTHING, Around, Setting, Source
from meshwright.errors import InputError, Message
from meshwright.frameworks.bridge.called import call_of, harmless_lines, trees
from meshwright.frameworks.bridge.program import REDUCED
from meshwright.frameworks.bridge.recipes import NESTED, canonical, exists, spelled
from meshwright.frameworks.bridge.teacher import SHARED, TEACHER, taught
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.frameworks.base import File

RESET = frozenset({
    "model.virtual_pipeline_model_parallel_size", "model.pipeline_model_parallel_layout",
    "model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage", "model.recompute_granularity",
    "model.recompute_method", "model.recompute_num_layers", "model.recompute_modules",
})
"""What a recipe may have set, and a plan without it sets back to ``null``."""
PROGRAMS = frozenset({"run_recipe.py", "run_script.py", "setup_experiment.py"})
"""Bridge's own, which take the recipe by words. Source: Megatron-Bridge scripts/training, scripts/performance."""
SHORT = {
    "max_steps": "train.train_iters", "ms": "train.train_iters", "global_batch_size": "train.global_batch_size",
    "gb": "train.global_batch_size", "micro_batch_size": "train.micro_batch_size", "mb": "train.micro_batch_size",
    "seq_length": "dataset.seq_length", "sl": "dataset.seq_length",
    "tensor_model_parallel_size": "model.tensor_model_parallel_size", "tp": "model.tensor_model_parallel_size",
    "pipeline_model_parallel_size": "model.pipeline_model_parallel_size", "pp": "model.pipeline_model_parallel_size",
    "context_parallel_size": "model.context_parallel_size", "cp": "model.context_parallel_size",
    "virtual_pipeline_model_parallel_size": "model.virtual_pipeline_model_parallel_size",
    "vp": "model.virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size": "model.expert_model_parallel_size", "ep": "model.expert_model_parallel_size",
    "expert_tensor_parallel_size": "model.expert_tensor_parallel_size", "etp": "model.expert_tensor_parallel_size",
    "et": "model.expert_tensor_parallel_size", "sequence_parallel": "model.sequence_parallel", "lr": "optimizer.lr",
    "train_iters": "train.train_iters",
}
"""Flags of Bridge's scripts, and arguments of its recipe functions -> the field that they set."""

_REDUCES = "mixed_precision.grad_reduce_in_fp32"
_FOLLOWED = frozenset({"python.functions", "python.handed"})
"""Remarks on a program of which nothing is open where its lines on gradients are read."""


def open_files(files: Sequence[File]) -> Source:
    """The files as Bridge merges them: the command line wins over YAML, and YAML over the Python recipe."""
    ordered = sorted(files, key=lambda file: 2 if is_script(file.path) else PurePath(file.path).suffix.lower() not in PYTHON)
    source = open_source(ordered)
    settings = dict(_fields(source.settings))
    reduced = {each.path: found for each in source.documents if (found := REDUCED.search(each.text))}
    for path, found in reduced.items():
        settings[_REDUCES] = Setting(key=_REDUCES, value=found[2] == "True", file=path)
    harmless = {(each.path, line) for each in source.documents for tree in trees((each,)) for line in harmless_lines(tree)}
    remarks = tuple(
        remark for remark in source.remarks
        if remark.id != "source.twice" and not (remark.id in _FOLLOWED and remark.path in reduced)
        and not (remark.id == "python.handed" and (remark.path, remark.values.get("line")) in harmless)
    )
    documents = tuple(OverrideDocument(script=each, nullable=RESET) if is_script(each.path) else each for each in source.documents)
    return replace(source, documents=tuple(map(Sectioned, documents)), settings=settings, remarks=remarks)


def lacks_program(source: Source) -> Message | None:
    """What to give, where the launch starts a program of its own: the recipe and the task stand in it."""
    found = started(source)
    if found is None or PurePath(found[0]).name in PROGRAMS or {"--recipe", "--model"} & source.settings.keys():
        return None
    words = "the launch starts {program}, where the recipe and the task stand (pretraining, fine-tuning or adapters): give that " \
        "file as well, or say --task"
    return Message("import.program-file", words, {"program": found[0]}, path=found[1])


class Sectioned(Around, frozen=True):
    """A document whose fields ``model.transformer.x`` (main's models that are no providers) are ``model.x``."""

    beneath: frozenset[str] = frozenset()
    """Fields that the recipe sets: taken out of the document they would have its value again."""

    def settings(self) -> Mapping[str, Setting]:
        """Those of the document, by the names that providers have for them."""
        return {_field(key): setting for key, setting in self.inner.settings().items()}

    def changed(self, edits: Mapping[str, object]) -> str:
        """The document with the edits, in the section where its fields stand."""
        there = self.inner.settings()
        edits = {key: _off(key) if value is None and key in self.beneath else value for key, value in edits.items()}
        both = {TEACHER + name: edits[f"model.{name}"] for name in SHARED if f"model.{name}" in edits}
        edits = {**edits, **{key: value for key, value in both.items() if key in there}}
        section = NESTED if any(key.startswith(f"{NESTED}.") for key in there) else "model"
        return self.inner.changed({key if key in there else spelled(key, section): value for key, value in edits.items()})


def _off(key: str) -> object:
    """A field as it is where nobody sets it, as Python, YAML and Hydra spell that."""
    from meshwright.frameworks.bridge import surface

    known = surface().find(key, "main") or surface().find(key, "0.3")
    default = known.default if known is not None else ""
    if not default:
        return NOTHING
    return {"True": True, "False": False}.get(default, int(default) if default.isdigit() else default)


def detect(source: Source) -> str | None:
    """The release that knows more of the fields, or has the recipe; None where both do."""
    from meshwright.frameworks.bridge import surface

    fields = [key for key in source.settings if "." in key or key.startswith("--")]
    table = surface()
    known = {release: sum(table.find(key, release) is not None for key in fields) for release in table.releases}
    best = max(known.values())
    able = [release for release, count in known.items() if count == best]
    if len(able) > 1:
        calls = {release: call_of(source, release) for release in able}
        able = [release for release, call in calls.items() if call is not None and exists(call.recipe, release)]
    return able[0] if len(able) == 1 else None


def _fields(settings: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Settings under the names of fields: short flags first, so that full names win; words of a command line are YAML."""
    for key, setting in settings.items():
        name = SHORT.get(key.lstrip("-"))
        if name is not None and name not in settings:
            yield name, _read(name, setting)
    for key, setting in settings.items():
        if SHORT.get(key.lstrip("-")) is None:
            yield _field(key), _read(_field(key), setting)


def _field(key: str) -> str:
    """The field of the configuration that a key sets, by the name that it has in a provider."""
    return taught(canonical(key)).replace(f"{TEACHER}transformer.", TEACHER, 1)


def _read(key: str, setting: Setting) -> Setting:
    """A setting with the value that Hydra reads from a word."""
    value = setting.value
    if isinstance(value, tuple) and is_script(setting.file):
        value = " ".join(map(str, value))
    if isinstance(value, str) and is_script(setting.file) and not key.startswith("-"):
        with suppress(InputError):
            value = parse_yaml(value)
    if isinstance(value, str) and _is_number(value):
        value = float(value)
    return replace(setting, key=key, value=value)


def _is_number(text: str) -> bool:
    """``1e-5``, which YAML 1.1 takes for text and OmegaConf for a number."""
    with suppress(ValueError):
        float(text)
        return "e" in text.lower() and text[-1].isdigit()
    return False
