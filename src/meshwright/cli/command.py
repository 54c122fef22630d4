"""A verb's command from its table of fields: the request that a command line makes, asked and printed."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from meshwright.api.fields import Field
from meshwright.cli.words import AsWritten
from meshwright.errors import fault

WORDS = "WORDS"
"""What stands for the value of an option that takes several words."""


class Verb(AsWritten, TyperCommand):
    """A verb's command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option of one value that is given twice: the last would win, and the others be lost in silence."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for each, times in Counter(order).items():
            if times > 1 and each.param_type_name == "option" and not (each.multiple or getattr(each, "is_flag", False)):
                rest = "; all its words stand in one, as in {option} 'A=1 B=2'" if each.metavar == WORDS else ", and has one value"
                raise fault("cli.repeated", "{option} is given {times} times" + rest, option=each.opts[0], times=times)
        return super().parse_args(ctx, args)


def command(name: str, summary: str, verb: Any) -> Any:
    """The command of a verb's module, with one parameter per field.

    A module has ``FIELDS`` (its options), ``EPILOG``, and ``REQUEST``, ``ASK`` and ``report``: the request is asked, and its answer
    is printed as JSON or as a report.
    """

    def run(**raw: Any) -> int:
        return _asked(verb, raw)

    run.__signature__ = inspect.Signature([_parameter(field) for field in verb.FIELDS])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    run.__doc__ = summary
    group = typer.Typer(rich_markup_mode="rich", add_completion=False)
    group.command(name, cls=Verb, epilog=verb.EPILOG or None)(run)
    return typer.main.get_command(group)


def _asked(verb: Any, raw: Mapping[str, Any]) -> int:
    """Ask, print, and say by the exit status whether the answer is a yes.

    ``WATCH``: what a verb shows before it is done; ``AFTER``: what it says when it is.
    """
    from meshwright.cli.ending import complain
    from meshwright.cli.numbers import prepare
    from meshwright.cli.output import print_json, print_lines, print_report, stages

    shown = False

    def show(answer: Any) -> None:
        nonlocal shown
        shown = True
        if raw["json"]:
            print_json(answer.to_json())
        else:
            print_report(verb.report(answer, raw))
        print(end="", flush=True)  # an error of the stream ends it here

    request = verb.REQUEST(**{field.name: raw[field.name] for field in verb.REQUEST.FIELDS})
    prepare()
    watched = verb.WATCH(raw, show) if hasattr(verb, "WATCH") else {}
    with stages() as tick, warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _said
        answer = verb.ASK(request, progress=tick, **watched)
    if answer is None:  # a rank of an allocation that is not the first
        return 0
    if not shown:
        show(answer)
    if hasattr(verb, "AFTER"):
        verb.AFTER(answer, raw)
    if answer.page and not raw["json"]:
        print_lines([f"written: {answer.page}"])
    if answer.refusal is not None:
        complain([answer.refusal], answer.status)
    return int(answer.status)


def _said(message: Warning | str, *_: object, **__: object) -> None:
    """A warning is one line on standard error."""
    from meshwright.cli.output import warn

    warn(f"warning: {message}")


def _parameter(field: Field) -> inspect.Parameter:
    """A field as a parameter that Typer understands."""
    help_text = field.help.replace("[", "\\[")
    kind: Any = str | None
    default: Any = None
    if field.kind == "argument":
        option: Any = typer.Argument(metavar=field.metavar, help=help_text, show_default=False)
    elif field.kind == "arguments":
        kind, default = list[str], []
        option = typer.Argument(metavar=field.metavar, help=help_text, show_default=False)
    elif field.kind == "flag":
        kind, default = bool, False
        option = typer.Option(field.option, help=help_text, rich_help_panel=field.panel)
    else:
        if field.kind == "many":
            kind, default = list[str], []
        option = typer.Option(field.option, metavar=field.metavar, help=help_text, show_default=False, rich_help_panel=field.panel)
    annotation = Annotated[kind, option]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
