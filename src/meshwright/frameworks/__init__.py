"""Training frameworks: what each can run, what it refuses, and files to launch it.

Every framework, the built-in ones too, is found through the entry-point group ``meshwright.frameworks``: an entry point
names a ``Framework``, or a tuple of them. A plugin that cannot be loaded is logged and left out.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from meshwright.errors import fault, nearest
from meshwright.frameworks.base import File, Framework, Limit, Options
from meshwright.registry import Registry

__all__ = ["GROUP", "File", "Framework", "Limit", "Options", "default_for", "framework", "frameworks"]

GROUP = "meshwright.frameworks"
_NAMES = (
    "megatron", "bridge", "megatron-deepspeed", "deepspeed", "chatlearn", "mindspeed-core-ms", "mindformers", "mindspeed-llm",
    "nanotron", "picotron", "torchtitan", "accelerate",
)
_BUILT_IN = tuple(
    EntryPoint(name, f"meshwright.frameworks.{name.replace('-', '_')}:{name.replace('-', '_').upper()}", GROUP) for name in _NAMES
)
"""Entry points of this package, for a source tree that was never installed; the same lines stand in pyproject.toml."""
_LOG = logging.getLogger(__name__)


@cache
def frameworks() -> tuple[str, ...]:
    """Names of all frameworks, sorted."""
    return tuple(_registry())


def framework(name: str) -> Framework:
    """The framework of a name or an alias, in any case and with ``_`` for ``-``; ``name@version`` is it at a release."""
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
    (found,) = _load(_BUILT_IN[_NAMES.index(name)])
    return found


@cache
def _registry() -> Registry[Framework]:
    """Everything that loads, built-ins first; a name that is taken is not given again."""
    registry = Registry[Framework]("framework")
    plugins = [point for point in entry_points(group=GROUP) if point.value not in {own.value for own in _BUILT_IN}]
    for point in (*_BUILT_IN, *plugins):
        for found in _load(point):
            if found.name in registry:
                _LOG.warning("framework %r of plugin %s is skipped: the name is taken", found.name, point.value)
            else:
                registry.add(found.name, found)
    return registry


def _load(point: EntryPoint) -> tuple[Framework, ...]:
    """The frameworks behind an entry point; a broken plugin of others is logged and gives none."""
    try:
        value = point.load()
    except Exception:
        if point in _BUILT_IN:
            raise
        _LOG.warning("framework plugin %s could not be loaded and is skipped", point.value, exc_info=True)
        return ()
    found = value if isinstance(value, tuple) else (value,)
    if wrong := [each for each in found if not isinstance(each, Framework)]:
        _LOG.warning("framework plugin %s names a %s and is skipped", point.value, type(wrong[0]).__name__)
        return ()
    return found
