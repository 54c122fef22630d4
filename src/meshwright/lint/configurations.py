"""Configurations: keys with values that should not stay, and the rules of the framework whose file it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.opening import open_document
from meshwright.documents.tree import TreeDocument
from meshwright.errors import InputError, Message
from meshwright.frameworks import framework
from meshwright.lint.found import Edit, Found
from meshwright.lint.framework import framework_findings
from meshwright.lint.rule import rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.documents.source import Setting
    from meshwright.lint.rule import Look, Rule

_SIGNS: Mapping[Look, frozenset[str]] = {
    "DeepSpeed JSON": frozenset(
        {
            "zero_optimization",
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "zero_allow_untested_optimizer",
            "wall_clock_breakdown",
        }
    ),
    "accelerate YAML": frozenset({"distributed_type", "compute_environment", "fsdp_config", "deepspeed_config", "num_machines"}),
    "MindSpore YAML": frozenset(
        {"runner_config", "parallel_config", "train_precision_sync", "moe_config", "context", "recompute_config"}
    ),
}
"""Kind of file -> sections that only it has."""
_JSON = re.compile("|".join(f'"{sign}"' for sign in _SIGNS["DeepSpeed JSON"]))
_YAML = re.compile("^(?:" + "|".join((*_SIGNS["accelerate YAML"], *_SIGNS["MindSpore YAML"])) + ")[ \t]*:", re.MULTILINE)
_SURE = {
    "context.mode",
    "context.device_target",
    "context.max_device_memory",
    "context.jit_config",
    "context.deterministic",
    "context.save_graphs",
}
_FRAMEWORKS = {"DeepSpeed JSON": "deepspeed", "accelerate YAML": "accelerate", "MindSpore YAML": "mindformers"}


def kind_of(settings: Mapping[str, object], *, is_json: bool) -> Look | None:
    """What sort of configuration a file is, by its keys; None where it is none that is known here."""
    sections = {key.partition(".")[0] for key in settings}
    if is_json:
        return "DeepSpeed JSON" if sections & _SIGNS["DeepSpeed JSON"] else None
    if len(sections & _SIGNS["accelerate YAML"]) >= 2:
        return "accelerate YAML"
    if set(settings) & _SURE or len(sections & _SIGNS["MindSpore YAML"]) >= 2:
        return "MindSpore YAML"
    return None


def configuration_findings(text: str, path: str) -> Iterator[Found]:
    """What is found in a configuration; nothing where it is none of those that are known.

    Errors:  ``InputError`` where it is not in its own language.
    """
    is_json = path.lower().endswith((".json", ".jsonc"))
    if not (_JSON if is_json else _YAML).search(text):
        return
    document, _ = open_document(path, text)
    settings = document.settings()
    kind = kind_of(settings, is_json=is_json)
    if kind is None:
        return
    mode = settings.get("run_mode")
    if kind == "MindSpore YAML" and mode is not None and mode.value in ("predict", "eval"):
        return  # it trains nothing
    for rule in rules().values():
        if rule.looks_at == kind:
            setting = settings.get(rule.when["key"])
            if (
                setting is not None
                and _is_one_of(setting.value, rule.when["values"])
                and ("beside" not in rule.when or rule.when["beside"] in settings)
            ):
                yield _found(rule, setting, document if isinstance(document, TreeDocument) else None, path)
    named = framework(_FRAMEWORKS[kind])
    if kind != "MindSpore YAML":  # which of its two kinds a file of MindFormers is, the file alone does not say
        said = framework_findings(named, path, text)
        trainer = '"auto"' in text  # the Hugging Face Trainer or accelerate fills it in
        yield from (each for each in said if not (trainer and each.id in ("deepspeed.auto", "deepspeed.batch-missing")))


def _is_one_of(value: object, values: list[object]) -> bool:
    """Whether a value is one of some, of the same type; words without case."""
    return any(
        value.lower() == each.lower()
        if isinstance(value, str) and isinstance(each, str)
        else type(value) is type(each) and value == each
        for each in values
    )


def _found(rule: Rule, setting: Setting, document: TreeDocument | None, path: str) -> Found:
    """A finding at a key, with the edit that a document makes of it."""
    edits: tuple[Edit, ...] = ()
    if "set" in rule.when and document is not None:
        try:
            changed = document.changed({setting.key: rule.when["set"]})
        except InputError:
            changed = document.text
        edits = _difference(document.text, changed)
    code = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
    return Found(
        id=rule.id,
        severity=rule.severity,
        message=Message(rule.id, rule.says, {"code": code}),
        file=path,
        line=setting.line or 1,
        source=rule.source,
        edits=edits,
    )


def _difference(before: str, after: str) -> tuple[Edit, ...]:
    """The one stretch of bytes in which two texts differ."""
    if before == after:
        return ()
    old, new = before.encode("utf-8", "surrogatepass"), after.encode("utf-8", "surrogatepass")
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    tail = next(
        (i for i, (a, b) in enumerate(zip(reversed(old[start:]), reversed(new[start:]), strict=False)) if a != b),
        min(len(old), len(new)) - start,
    )
    return (Edit(start=start, end=len(old) - tail, text=new[start : len(new) - tail].decode("utf-8", "surrogatepass")),)
