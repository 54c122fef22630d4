"""Every key of torchtitan's configuration over its releases."""

from __future__ import annotations

from functools import cache

from meshwright.frameworks.surface import Surface, load_surface
from meshwright.frameworks.torchtitan.models import RELEASES


@cache
def surface() -> Surface:
    """TOML keys of ``JobConfig`` (0.2), flags of ``Trainer.Config`` (0.3 and main)."""
    return load_surface(__package__, "torchtitan", RELEASES)
