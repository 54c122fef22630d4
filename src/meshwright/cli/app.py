"""The verbs by name. ``--help`` knows what they do without importing any of them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from meshwright.errors import InputError, fault, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "plan": "Search every layout for a model on a cluster; the best ones, ranked and explained.",
    "estimate": "Predict one layout: memory by stage, time by cause, MFU.",
    "explain": "Say why a layout is as fast as it is, and where the rest goes.",
    "balance": "Put layers on pipeline stages and choose what each recomputes, so that a step is shortest and all fits.",
    "export": "Write a plan as the files of a framework.",
    "import": "Read the files of a framework as a layout, and say what they leave open.",
    "check": "Judge the files of a framework: mistakes, memory, waste, claims.",
    "fix": "Find the smallest change that makes a configuration fit, faster, smaller or legal.",
    "calibrate": "Fit the physical constants to measured runs, yours or the corpus that ships.",
    "profile": "Measure this machine or allocation by micro-benchmarks, and write a cluster file.",
    "rehearse": "Profile this machine, plan a small model for it, run the layouts, and set measured beside predicted.",
    "step": "Run the reference training step of one layout on this machine: time, tokens/s, MFU, memory.",
    "dryrun": "Run one rank's training step on fake devices: memory, FLOPs and messages, beside the cost model's.",
    "validate": "Score the predictions against measured runs that no fit has seen.",
    "catalog": "List and show devices, clusters, models, frameworks, implementations, and what others measured.",
}
"""Verb -> what it does. ``cli.command`` says what its module in ``meshwright.cli`` has."""
MODULES = {"import": "importing"}
"""Verb -> module, where the verb is a word of Python; the others are modules of their own name."""


class LazyGroup(TyperGroup):
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


@app.callback()
def _meshwright(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Find, explain and write out the fastest training configuration for a large model on a cluster."""


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
        hint = nearest(option, error.possibilities or (), f"meshwright {verb} --help" if verb else "meshwright --help")
        return fault("cli.option", "unknown option {option!r}{hint}", option=option, hint=hint)
    if found := _TOO_MANY.match(reason):
        return fault("cli.arguments", "too many arguments: {words!r}; a value with spaces needs quotes", words=found[1])
    return fault("cli.usage", "{reason}", reason=reason)
