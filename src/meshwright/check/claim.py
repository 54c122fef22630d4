"""A figure that somebody claims of a run."""

from __future__ import annotations

from msgspec import Struct

from meshwright.errors import did_you_mean, fault

NAMES = ("tokens_per_s", "tokens_per_s_per_device", "tflops_per_device", "mfu", "step_s", "samples_per_s", "memory_gb")


class Claim(Struct, frozen=True, kw_only=True):
    """One figure: its name among ``NAMES``, and its value in the unit of the name; ``mfu`` is a ratio, ``memory_gb`` GiB."""

    name: str
    value: float

    def __str__(self) -> str:
        """``tflops_per_device=150``."""
        return f"{self.name}={self.value:,.6g}"


def claim(name: str, value: float) -> Claim:
    """A claim of a known name; an MFU above 1 is percent.

    Errors: ``InputError`` for an unknown name, or a value that is not above zero.
    """
    if name not in NAMES:
        raise fault("claim.name", "unknown claim {name!r}{hint}; known: {known}",
                    name=name, hint=did_you_mean(name, NAMES), known=", ".join(NAMES))
    if not value > 0:
        raise fault("claim.value", "{name} is {value}: it must be above zero", name=name, value=value)
    return Claim(name=name, value=value / 100 if name == "mfu" and value > 1 else value)
