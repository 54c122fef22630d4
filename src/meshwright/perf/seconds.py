"""Seconds by cause, so that a step can be taken apart again."""

from __future__ import annotations

from msgspec import Struct

from meshwright.perf.arrays import Array, Number, array


class Seconds(Struct, frozen=True, kw_only=True):
    """Exposed seconds of some work on one rank: compute, and the communication and host time that nothing hides."""

    compute: Array
    tensor: Array
    context: Array
    expert: Array
    host: Array

    @property
    def total(self) -> Array:
        """All causes."""
        return self.compute + self.tensor + self.context + self.expert + self.host

    def plus(self, other: Seconds) -> Seconds:
        """The sum, cause by cause."""
        return Seconds(
            compute=self.compute + other.compute, tensor=self.tensor + other.tensor, context=self.context + other.context,
            expert=self.expert + other.expert, host=self.host + other.host,
        )

    def times(self, factor: Number) -> Seconds:
        """Every cause multiplied."""
        return Seconds(
            compute=self.compute * factor, tensor=self.tensor * factor, context=self.context * factor,
            expert=self.expert * factor, host=self.host * factor,
        )


def seconds(
    *, compute: Number = 0.0, tensor: Number = 0.0, context: Number = 0.0, expert: Number = 0.0, host: Number = 0.0
) -> Seconds:
    """Seconds by cause; what is not given is zero."""
    return Seconds(compute=array(compute), tensor=array(tensor), context=array(context), expert=array(expert), host=array(host))
