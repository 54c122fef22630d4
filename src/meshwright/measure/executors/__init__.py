"""Where trials run: this machine, a scheduler, other hosts. Found through the entry-point group ``meshwright.executors``.

An entry point names a function of no argument that gives an ``Executor`` (a class of one does). One that cannot be loaded is logged
and left out. ``meshwright.testing.executors`` holds what any of them promises.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from meshwright.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.measure.executors.base import Executor

GROUP = "meshwright.executors"
_BUILT_IN = {
    "local": "meshwright.measure.executors.local:Local",
    "slurm": "meshwright.measure.executors.slurm:Slurm",
    "ssh": "meshwright.measure.executors.ssh:Ssh",
    "kubernetes": "meshwright.measure.executors.kubernetes:Kubernetes",
    "ray": "meshwright.measure.executors.ray:Ray",
}
"""Those of this package; the same stand in pyproject.toml."""


@cache
def executors() -> Registry[EntryPoint]:
    """Every executor by its name, those of this package first; a name that is taken is not given again."""
    from importlib.metadata import entry_points

    registry = Registry[EntryPoint]("executor")
    for name, place in _BUILT_IN.items():
        registry.add(name, EntryPoint(name, place, GROUP))
    for point in entry_points(group=GROUP):
        if point.name not in registry:
            registry.add(point.name, point)
    return registry


def executor(name: str) -> Executor:
    """The executor of a name.

    Errors:  InputError for a name that nobody has, and for a plugin that cannot be loaded.
    """
    from meshwright.errors import fault

    point = executors()[name.strip().lower()]
    try:
        make: Callable[[], Executor] = point.load()
    except Exception as error:
        raise fault("executor.broken", "executor {name} of {place} cannot be loaded: {reason}", path="--executor", name=name,
                    place=point.value, reason=str(error) or type(error).__name__) from error
    return make()
