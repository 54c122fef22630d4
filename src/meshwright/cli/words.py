"""Words of a command line as they were written: the fields of a verb read them (``api.fields``)."""

from __future__ import annotations

from functools import partial
from typing import Any


class AsWritten:
    """A command whose words are taken as they are. Typer would put each through a validator of its own, whose library takes
    longer to import than all that a command line needs.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, of which each takes what was written."""
        own: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in own:
            each.process_value = partial(_taken, each)
        return own


def _taken(parameter: Any, context: Any, value: Any) -> Any:
    """A word, or a list of them, or whether a flag was given."""
    if parameter.multiple or parameter.nargs == -1:
        value = list(value or ())
    return value if parameter.callback is None else parameter.callback(context, parameter, value)
