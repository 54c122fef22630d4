"""What every runner shares: cases in, verdicts out, stand-ins for packages that are not needed.

A runner is a process: ``python RUNNER.py DIRECTORY < cases.jsonl > verdicts.jsonl``, a line out for each line in. A case is
``{"files": {name: text}, "argv": [...], "env": {...}, "world": ranks, "checks": {...}}``, all optional but ``world``; its files
lie in the working directory while it is judged. A verdict is ``{"accepted", "by", "why", "config"}``: ``by`` says whether the
framework's own code decided (``parser``) or a rule of its trainer that the runner repeats (``repeated``).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import importlib.abc
import importlib.machinery
import io
import json
import logging
import os
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import typing_extensions

Case = dict[str, typing.Any]
Judge = Callable[[Case], typing.Any]
LONGEST_REASON = 2000  # characters


class RefusedError(Exception):
    """A rule of the framework that its parser does not hold and the runner repeats."""


def insist(condition: object, why: str) -> None:
    """Repeats one rule of a framework: ``why`` is the framework's wording."""
    if not condition:
        raise RefusedError(why)


def serve(ready: Callable[[str], Judge]) -> None:
    """Imports once (``ready`` of the directory named on the command line), then answers each case on a line of its own."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print while they are imported
    judge = ready(sys.argv[1])
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        answers.write(json.dumps(verdict(judge, json.loads(line))) + "\n")
        answers.flush()


def verdict(judge: Judge, case: Case) -> dict[str, typing.Any]:
    """One case judged; whatever the framework raises is its reason."""
    printed = io.StringIO()
    by, why, config = "parser", "", None
    try:
        with surroundings(case), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            config = plain(judge(case))
    except RefusedError as error:
        by, why = "repeated", str(error)
    except SystemExit as error:
        said = printed.getvalue().strip()
        starts = max(said.rfind("error: "), said.rfind("╭"), 0)  # argparse prints its usage first, tyro draws a frame
        why = said[starts:] or str(error.code)
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
    return {"accepted": not why, "by": by, "why": one_line(why), "config": config}


@contextlib.contextmanager
def surroundings(case: Case) -> Iterator[None]:
    """The case's files in an empty working directory, its environment variables and its arguments."""
    back, arguments = Path.cwd(), sys.argv
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, case.get("env", {})):
        for name, text in case.get("files", {}).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        os.chdir(folder)
        sys.argv = ["train.py", *case.get("argv", [])]
        try:
            yield
        finally:
            os.chdir(back)
            sys.argv = arguments


def one_line(text: str) -> str:
    """Without line breaks, frames and colours, and not endless."""
    bare = "".join(character for character in text if character not in "╭╮╰╯│─")
    return " ".join(bare.split())[:LONGEST_REASON]


def plain(value: typing.Any) -> typing.Any:
    """A parsed configuration as JSON values."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    if isinstance(value, types.FunctionType | type):
        return value.__name__
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    return str(value)


def only_file(case: Case, *endings: str) -> str:
    """The name of the one file with such an ending."""
    names = [name for name in case.get("files", {}) if name.endswith(endings)]
    if len(names) != 1:
        raise ValueError(f"one file ending in {' or '.join(endings)} is wanted, not {names}")
    return names[0]


class _AnythingType(type(typing_extensions.Protocol)):  # type: ignore[misc]  # mixes with protocols and abstract classes
    def __getattr__(cls, name: str) -> typing.Any:
        if name.startswith("_") or "stands_in" not in cls.__dict__:
            raise AttributeError(name)
        return anything(name)


def anything(name: str) -> type:
    """One attribute of a package that is stood in for: base, decorator, annotation and module at once."""

    def new(cls: type, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type):
            return args[0]  # it decorated
        return object.__new__(cls) if not issubclass(cls, BaseException) else BaseException.__new__(cls)

    base = Exception if name.endswith(("Error", "Exception")) else object
    return _AnythingType(name, (base,), {
        "stands_in": True, "__new__": new, "__init__": lambda *_, **__: None,
        "__class_getitem__": classmethod(lambda cls, _: cls), "__getattr__": lambda self, key: anything(key),
        "__call__": lambda self, *args, **__: args[0] if args else None,
    })


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...], version: str) -> None:
        self.names, self.version = names, version

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> typing.Any:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self.names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        def attribute(name: str) -> typing.Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return anything(name)

        module.__path__ = []
        module.__getattr__ = attribute  # type: ignore[method-assign]
        module.__version__ = self.version


def stand_in(*names: str, version: str = "0") -> None:
    """Imports of these packages and of what is below them succeed and hold nothing."""
    sys.meta_path.insert(0, _StandIns(names, version))


def bare_package(name: str, folder: Path) -> None:
    """Registers a package by its folder alone: its ``__init__`` is not run, modules below it import as usual."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


def taken(source: Path, name: str, namespace: dict[str, typing.Any]) -> typing.Any:
    """One class, function or method of a file, from its syntax tree, executed alone with the names that it needs."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    kinds = ast.ClassDef | ast.FunctionDef
    found = next(node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == name)
    exec(compile(ast.Module(body=[found], type_ignores=[]), str(source), "exec", dont_inherit=True), namespace)
    return namespace[name]
