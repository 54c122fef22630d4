"""Laws of the files: ``check`` reads out of what ``plan --save`` wrote the layout and the figures that were planned."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import meshwright as mw
from benchmarks.coherence.trial import Asked, refused, same
from meshwright.api.launch_files import launch_files
from meshwright.api.saved import plan_file
from meshwright.domain.label import label
from meshwright.errors import MeshwrightError
from meshwright.outputs import in_folder, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.coherence.trial import Trial

BESIDE = ("plan.yaml", "README.md", "probe.sh")
"""What is saved beside the files that launch the plan."""
READ = {".sh", ".yaml", ".yml", ".json", ".toml", ".py"}
CASE = ("model", "layers", "device", "nodes", "global_batch", "sequence", "task", "precision", "gradient_dtype", "calibration",
        "max_memory_ratio", "lengths")
"""Options of the case that ``check`` takes, too: files do not say all of them."""


def written(trial: Trial) -> Iterator[Asked]:
    """Plan with ``--save``, then ``check`` the files."""
    folder = Path(tempfile.mkdtemp(prefix="coherence-"))
    try:
        yield from _checked(trial, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checked(trial: Trial, folder: Path) -> Iterator[Asked]:
    given, best = trial.answer.given, trial.answer.result.plans[0]
    out = folder / "out"
    try:  # what --save does with the first plan, without another search
        launching = launch_files(given, best.layout, best.estimate) if given.framework.writer is not None else []
        write(in_folder(out, [plan_file(given.request, best.estimate), *launching]), force=False)
    except MeshwrightError as error:
        yield Asked("a plan can be saved", refused(error), "plan", {"save": "out"})
        return
    yield Asked("a plan can be saved")
    files = sorted(path for path in out.rglob("*") if path.is_file() and "probe" not in path.relative_to(out).parts)
    files = [path for path in files if path.name not in BESIDE and path.suffix in READ]
    lacks = "" if files or given.framework.writer is None else "no files"
    yield Asked("a plan is saved with its launch files", lacks, "plan", {"save": "out"})
    if not files:
        return
    options = {name: trial.options[name] for name in CASE if name in trial.options}
    if "lengths" in options:  # what the plan chose, where files do not say it
        options |= {name: given.request[name] for name in ("packs", "max_tokens") if name in given.request}
    more: dict[str, Any] = {
        "files": [path.relative_to(folder) for path in files], "from_": given.framework.name,
        **{key: value for key, value in options.items() if key != "model"},
    }
    try:
        checked = mw.check(mw.CheckRequest(files=[str(path) for path in files], from_=given.framework.name, **options)).checked
    except MeshwrightError as error:
        yield Asked("check reads the files that plan wrote", str(error)[:300], "check", more)
        return
    yield Asked("check reads the files that plan wrote")
    errors = [f"{each.message.id}: {each.message.words}" for each in checked.findings if each.severity == "error"]
    yield Asked("check finds no error in the files that plan wrote", "; ".join(errors)[:300], "plan", {"save": "out"})
    if checked.estimate is None:
        yield Asked("check prices the files that plan wrote", "; ".join(checked.skipped)[:300], "plan", {"save": "out"})
        return
    yield Asked("check prices the files that plan wrote")
    planned, layout = trial.first, given.framework.normal(given.case, trial.first.layout)
    said = checked.estimate.layout
    yield Asked("the files say the planned layout", "" if said == layout else f"{_label(said)}, planned {_label(layout)}", "plan",
                {"save": "out"})
    if layout == planned.layout and said == layout:
        wrong = [
            f"{name}: {getattr(planned, name):.6g}, checked {getattr(checked.estimate, name):.6g}"
            for name in ("step_s", "memory_reserved_bytes", "memory_fit_probability")
            if not same(getattr(planned, name), getattr(checked.estimate, name))
        ]
        yield Asked("check says plan's figures where the files say the whole layout", "; ".join(wrong), "plan", {"save": "out"})
    elif said == layout:
        yield Asked("what the files cannot say changes no figure",
                    "" if same(planned.step_s, checked.estimate.step_s) else
                    f"{_label(planned.layout)} {planned.step_s:.6g} s, as files {_label(said)} {checked.estimate.step_s:.6g} s",
                    "plan", {"save": "out"})


def _label(layout: Any) -> str:
    return label(layout, overlap=None) if layout is not None else "none"


LAWS = (written,)
