"""What a command has written: does each file parse as what it is, and does none of it run what a name said?"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shutil
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.hostile.atoms import CANARY

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT_S = 10
NOBODY = 65534
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")


def broken(path: Path) -> str:
    """Why a written file is not what its name says, or the empty string."""
    raw = path.read_bytes()
    if not raw:
        return ""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "is no UTF-8"
    try:
        return _named(path.suffix, text)
    except (ValueError, yaml.YAMLError, ET.ParseError, SyntaxError, csv.Error, RecursionError) as error:
        return f"does not parse: {type(error).__name__} {str(error).splitlines()[0][:200] if str(error) else ''}"


def _named(suffix: str, text: str) -> str:
    """A text under a suffix; where the suffix says nothing, its beginning does."""
    match suffix:
        case ".json":
            return _injected(json.loads(text))
        case ".jsonl":
            return next(filter(None, (_injected(json.loads(line)) for line in text.splitlines() if line)), "")
        case ".yaml" | ".yml":
            return _injected(list(yaml.safe_load_all(text)))
        case ".toml":
            return _injected(tomllib.loads(text))
        case ".py":
            return (
                "holds code of a name"
                if any(isinstance(node, ast.Name) and node.id == CANARY for node in ast.walk(ast.parse(text)))
                else ""
            )
        case ".csv":
            return _formula(text)
        case ".sh":
            return ""
    if text.lstrip().startswith("<svg") or text.startswith("<?xml"):
        return _picture(text)
    return _injected(json.loads(text)) if text.lstrip().startswith(("{", "[")) and suffix in ("", ".svg", ".html") else ""


def _picture(text: str) -> str:
    """A picture that is XML and holds no script."""
    names = {
        element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()
    }  # what was written a moment ago by the program under test
    return f"holds <{min(names & {'script', CANARY, 'foreignObject'})}>" if names & {"script", CANARY, "foreignObject"} else ""


def _formula(text: str) -> str:
    """A table whose cells a spreadsheet would not run."""
    for line in csv.reader(io.StringIO(text)):
        for cell in line:
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.match(cell):
                return f"holds the formula {cell[:40]!r}"
    return ""


def _injected(document: object) -> str:
    """A document in which a name has become a key."""
    return "a name became a key" if any(key == CANARY for key in _keys(document)) else ""


def _keys(document: Any) -> Iterator[object]:
    if isinstance(document, dict):
        yield from document
        for value in document.values():
            yield from _keys(value)
    elif isinstance(document, list):
        for value in document:
            yield from _keys(value)


def script_faults(path: Path, environment: dict[str, str], scratch: Path) -> tuple[str, bool]:
    """What ``bash -n`` says of a script, and whether running it in a sandbox made the canary.

    The sandbox: another user where this one is root, a folder of its own, ``torchrun`` and its like that do nothing.
    """
    checked = subprocess.run(
        ["/bin/bash", "-n", str(path)], capture_output=True, timeout=SCRIPT_S, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    said = checked.stderr.decode("utf-8", "replace").splitlines()
    folder = scratch / "sandbox"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = scratch / "script"  # beside nothing of the campaign's that another user could not read
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(
        path.parent,
        copy,
        symlinks=True,
        ignore=lambda _, names: [each for each in names if not each.endswith((".sh", ".yaml", ".json", ".toml", ".md", ".py"))],
    )
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    canary = folder / CANARY
    base = {"PATH": environment["PATH"], "HOME": str(folder), "CANARY_FILE": str(canary), "LANG": "C.UTF-8"}
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    for extra in ({}, {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_SUBMIT_DIR": str(folder)}):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(["/bin/bash", str(copy / path.name)], cwd=folder, env={**base, **extra}, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=SCRIPT_S, check=False, **who)
    ran = any(CANARY in names for _, folders, names in os.walk(folder))
    return (said[0][-200:] if said else f"bash -n ends with {checked.returncode}") if checked.returncode else "", ran
