"""A verb's command from its table of fields, and the values of one call.

Every value arrives as text and is parsed here, so that all faults of the command line and of a request file are found
at once and read alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from meshwright.cli.fields import Faults, Field, Values
from meshwright.cli.request_file import read_request_file
from meshwright.errors import MeshwrightError, Message


def command(name: str, summary: str, fields: Sequence[Field], run: Callable[[Values, Faults], int], epilog: str = "") -> Any:
    """The command of a verb, with one parameter per field."""

    def verb(**raw: Any) -> int:
        faults = Faults()
        return run(read(fields, raw, faults), faults)

    verb.__signature__ = inspect.Signature([_parameter(field) for field in fields])  # type: ignore[attr-defined]
    verb.__annotations__ = {}
    verb.__doc__ = summary
    group = typer.Typer(rich_markup_mode="rich", add_completion=False)
    group.command(name, epilog=epilog or None)(verb)
    return typer.main.get_command(group)


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


def read(fields: Sequence[Field], raw: Mapping[str, Any], faults: Faults) -> Values:
    """Flags over the request file, parsed; what is wrong is noted in ``faults`` and left out."""
    file: Mapping[str, Any] = {}
    where = raw.get("request") or ""
    if where:  # a file that cannot be read ends it here: everything else would only seem to be missing
        file = read_request_file(where, faults)
    values: dict[str, Any] = {}
    for field in fields:
        flagged = raw.get(field.name)
        given, path = (flagged, field.option) if flagged else (file.get(field.name), f"{where}: {field.name}")
        if flagged == "":
            faults.add("option.empty", "an empty value", path=field.option)
            faults.failed.add(field.name)
        elif field.kind == "flag":
            values[field.name] = _switch(given, faults, path)
        elif field.kind in ("many", "arguments"):
            parsed = [_parsed(field, each, faults, path) for each in _several(given)]
            values[field.name] = [each for each in parsed if each is not None]
        elif given is not None and (value := _parsed(field, given, faults, path)) is not None:
            values[field.name] = value
    return values


def _several(given: object) -> list[Any]:
    """The values of a repeatable option: a list, or in a file also a mapping or one value."""
    if isinstance(given, Mapping):
        return [f"{key}={_word(value)}" for key, value in given.items()]
    return given if isinstance(given, list) else [] if given is None else [given]


def _parsed(field: Field, value: object, faults: Faults, path: str) -> Any:
    """The parsed value of one field, or None and a fault."""
    if isinstance(value, (list, dict)):
        faults.add("option.scalar", "one value is expected, not {kind}", path=path, kind=type(value).__name__)
        faults.failed.add(field.name)
        return None
    try:
        return field.parse(_word(value))
    except MeshwrightError as error:
        faults.messages += [Message(each.id, each.template, each.values, path) for each in error.messages]
        faults.failed.add(field.name)
        return None


def _switch(value: object, faults: Faults, path: str) -> bool:
    """A flag of the command line or of a file."""
    if isinstance(value, bool) or value is None:
        return bool(value)
    faults.add("option.switch", "{value!r} is neither true nor false", path=path, value=value)
    return False


def _word(value: object) -> str:
    """A scalar of YAML as the text that a flag would have been."""
    return str(value).lower() if isinstance(value, bool) else str(value)
