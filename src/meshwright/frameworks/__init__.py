"""Training frameworks: what each can run, what it refuses, and files to launch it.

Every framework, the built-in ones too, is found through the entry-point group ``meshwright.frameworks``: an entry point
names a ``Framework``, or a tuple of them. A plugin that cannot be loaded is logged and left out.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from meshwright.errors import fault, nearest
from meshwright.frameworks.base import File, Framework, Limit, Options
from meshwright.frameworks.tables import table_keys
from meshwright.registry import Registry
from meshwright.text import kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "File", "Framework", "Limit", "Options", "default_for", "framework", "frameworks"]

GROUP = "meshwright.frameworks"
_NAMES = (
    "megatron", "bridge", "megatron-deepspeed", "deepspeed", "chatlearn", "mindspeed-core-ms", "mindformers", "mindspeed-llm",
    "nanotron", "picotron", "torchtitan", "accelerate", "llama-factory-hf", "llama-factory-megatron", "verl-megatron",
    "verl-fsdp", "ms-swift-megatron", "nemo-rl-megatron", "nemo-rl-dtensor", "slime",
)
"""Those of this package; the same names stand in pyproject.toml."""


@cache
def frameworks() -> tuple[str, ...]:
    """Names of all frameworks, sorted."""
    return tuple(_registry())


def framework(name: str) -> Framework:
    """The framework of a name or an alias, in any case and with ``_`` for ``-``; ``name@version`` is it at a release."""
    if not isinstance(name, str):
        raise fault("framework.kind", "a framework is named by a text, not by {kind}", kind=kind(name))
    name, at, version = name.partition("@")
    wanted = name.strip().lower().replace("_", "-")
    if wanted in _NAMES:  # its own module alone: the others need not be imported
        return _built_in(wanted).at(version if at else None)
    registry = _registry()
    for known in registry:
        if wanted in (known, *registry[known].aliases):
            return registry[known].at(version if at else None)
    spellings = {spelling: known for known in registry for spelling in (known, *registry[known].aliases)}
    hint = nearest(wanted, spellings, "meshwright catalog frameworks", spellings)
    raise fault("framework.unknown", "unknown framework {name!r}{hint}", name=name, hint=hint)


def default_for(task: str) -> str:
    """The framework that is meant where none is named: the first of this package that trains with the task.

    >>> default_for("pretrain"), default_for("lora")
    ('megatron', 'bridge')
    """
    return next((name for name in _NAMES if task in _built_in(name).features.tasks), _NAMES[0])


@cache
def _built_in(name: str) -> Framework:
    """A framework of this package."""
    module, _, attribute = _place(name).partition(":")
    found: Framework = getattr(import_module(module), attribute)
    return found


def _place(name: str) -> str:
    """Where a framework of this package stands, as its entry point says it."""
    stem = name.replace("-", "_")
    return f"meshwright.frameworks.{stem}:{stem.upper()}"


@cache
def _registry() -> Registry[Framework]:
    """Everything that loads, built-ins first; a name that is taken is not given again."""
    registry = Registry[Framework]("framework")
    for name in _NAMES:
        registry.add(name, _built_in(name))
    for found in plugins():
        registry.add(found.name, found)
    return registry


@cache
def plugins() -> tuple[Framework, ...]:
    """Frameworks of other packages, in the order in which they are found."""
    from importlib.metadata import entry_points  # reads about all that is installed: not where a framework of ours is named

    own, known = {_place(name) for name in _NAMES}, dict.fromkeys(_NAMES)
    several: list[Framework] = []
    for point in entry_points(group=GROUP):
        for found in () if point.value in own else _load(point):
            if found.name in known:
                _warn("framework %r of plugin %s is skipped: the name is taken", found.name, point.value)
            else:
                known[found.name] = None
                several.append(found)
    return tuple(several)


def keys_of_ours() -> Iterator[tuple[str, Collection[str]]]:
    """Every framework of this package with its keys, by their tables, without their adapters."""
    return ((name, table_keys(name)) for name in _NAMES)


def keys_of_plugins() -> Iterator[tuple[str, Collection[str]]]:
    """Every framework of other packages that has a table of keys, with its keys."""
    return ((found.name, found.surface().keys) for found in plugins() if found.surface is not None)


def _load(point: EntryPoint) -> tuple[Framework, ...]:
    """The frameworks behind a plugin's entry point; a broken one is logged and gives none."""
    try:
        value = point.load()
    except Exception:
        _warn("framework plugin %s could not be loaded and is skipped", point.value, exc_info=True)
        return ()
    found = value if isinstance(value, tuple) else (value,)
    if wrong := [each for each in found if not isinstance(each, Framework)]:
        _warn("framework plugin %s names a %s and is skipped", point.value, type(wrong[0]).__name__)
        return ()
    return found


def _warn(template: str, *values: object, exc_info: bool = False) -> None:
    import logging

    logging.getLogger(__name__).warning(template, *values, exc_info=exc_info)
