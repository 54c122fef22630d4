"""The verbs as commands; each is imported when it is called."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from meshwright.cli.elsewhere import meant, meant_argument
from meshwright.cli.overview import PURPOSE, VERBS, VERSION
from meshwright.cli.words import AsWritten
from meshwright.errors import InputError, fault, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULES = {"import": "importing"}
"""Verb -> module, where the verb is a word of Python; the others are modules of their own name."""


class LazyGroup(AsWritten, TyperGroup):
    """A group whose verbs are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs, in the order of a session."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb's command; a misspelt one is an input error with a suggestion."""
        if cmd_name not in VERBS:
            if cmd_name.startswith("-"):
                return None
            raise fault(
                "cli.verb", "unknown command {verb!r}{hint}", verb=cmd_name, hint=nearest(cmd_name, VERBS, "meshwright --help"),
            )
        from meshwright.cli.command import command

        module = import_module(f"meshwright.cli.{MODULES.get(cmd_name, cmd_name)}")
        return command(cmd_name, VERBS[cmd_name], module)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of verbs from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, add_completion=False)


def _show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        from meshwright.version import __version__

        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


@app.callback(help=PURPOSE)
def _meshwright(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help=VERSION),
) -> None:
    """The options that come before a verb."""


def run(arguments: Sequence[str]) -> int:
    """Parse and run one command line; usage errors become input errors of one line."""
    group = typer.main.get_command(app)
    try:
        with group.make_context("meshwright", list(arguments) or ["--help"]) as context:
            status = group.invoke(context)
            return status if isinstance(status, int) else 0
    except typer.Exit as done:
        return int(done.exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise _usage(error, arguments) from None


_TOO_MANY = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)


def _usage(error: Any, arguments: Sequence[str]) -> InputError:
    """What the parser has to say, in our words."""
    reason = str(error.format_message())
    verb = next((word for word in arguments if word in VERBS), "")
    if option := getattr(error, "option_name", "") if hasattr(error, "possibilities") else "":
        command = getattr(getattr(error, "ctx", None), "command", None)
        known = frozenset(name for each in getattr(command, "params", ()) for name in each.opts)
        listing = f"meshwright {verb} --help" if verb else "meshwright --help"
        hint = meant(option, known) or nearest(option, error.possibilities or (), listing)
        return fault("cli.option", "unknown option {option!r}{hint}", option=option, hint=hint)
    if found := _TOO_MANY.match(reason):
        return fault("cli.arguments", "too many arguments: {words!r}; {hint}", words=found[1], hint=meant_argument(found[1], verb))
    return fault("cli.usage", "{reason}", reason=reason)
