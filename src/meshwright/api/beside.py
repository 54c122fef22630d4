"""What stands beside the files of a run and is none of them: a whole folder may be given, ``check run`` or ``check run/*``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from meshwright.api.request_file import PLAN_FILE, saved_plan
from meshwright.documents.opening import JSON, PYTHON, TOML, YAML, is_script

if TYPE_CHECKING:
    from collections.abc import Sequence

PROSE, NOTICES = {".md", ".rst"}, {"readme", "license", "notice", "changelog"}
PATCHES = {".patch", ".diff"}
SCRIPTS = {".sh", ".bash", ".sbatch", ".slurm"}
PROBE = "probe.sh"
MOST = 100
"""Entries of a folder that is the folder of one run."""


def of_the_run(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that say what is trained, and what stands beside them; all of them where nothing would be left.

    Beside them are folders, what people read, patches of the framework, a saved plan, and the probe of a launch that is given
    too. One folder alone is its files.
    """
    paths = _within(paths[0]) if len(paths) == 1 and _is_folder(paths[0]) else paths
    kept = [path for path in paths if not (is_prose(path) or _is_patch(path) or _is_folder(path) or _is_plan(path))]
    launches = [path for path in kept if is_script(path) and PurePath(path).name != PROBE]
    run = tuple(path for path in kept if not launches or PurePath(path).name != PROBE)
    return (run, tuple(path for path in paths if path not in run)) if run else (tuple(paths), ())


def _within(folder: str) -> Sequence[str]:
    """The files of a folder that may be those of a run; itself where it holds none, or too much for one."""
    try:
        entries = sorted(islice(Path(folder).iterdir(), MOST + 1))
        kinds = YAML | JSON | TOML | PYTHON | SCRIPTS | PROSE
        files = [str(each) for each in entries if each.suffix.lower() in kinds and each.name[0] != "." and each.is_file()]
    except OSError:
        return (folder,)
    return files if files and len(entries) <= MOST else (folder,)


def is_prose(path: str) -> bool:
    """Whether a file is for people."""
    name = PurePath(path)
    return name.suffix.lower() in PROSE or name.stem.lower() in NOTICES


def _is_patch(path: str) -> bool:
    """Whether a file changes the framework's own sources, and says nothing of the run."""
    return PurePath(path).suffix.lower() in PATCHES


def _is_folder(path: str) -> bool:
    """Whether a path is a folder."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # whoever opens it says what is wrong with it
        return False


def _is_plan(path: str) -> bool:
    """Whether a file is a plan of Meshwright."""
    return PurePath(path).name == PLAN_FILE and saved_plan(path) is not None
