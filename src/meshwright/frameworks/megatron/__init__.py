"""Megatron-LM: what it can express, what it refuses, and its launch files."""

from __future__ import annotations

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.megatron.flags import DEFAULT_VERSION
from meshwright.frameworks.megatron.limits import LIMITS, MODULES
from meshwright.frameworks.megatron.script import write

__all__ = ["MEGATRON"]

MEGATRON = Framework(
    name="megatron",
    title="Megatron-LM",
    aliases=("megatron-lm", "megatron-core", "mcore"),
    implementation="megatron-te",
    version=DEFAULT_VERSION,
    features=Features(
        name="megatron",
        instances_divide_experts=True,
        zero_stages=(0, 1, 2, 3),  # 2 and 3: Megatron-FSDP, without pipeline stages
        context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
        selective_modules=MODULES,
    ),
    limits=LIMITS,
    writer=write,
)
