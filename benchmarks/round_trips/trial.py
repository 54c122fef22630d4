"""A plan is saved, exported and read again by every verb that reads files: what went out comes in."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import meshwright as mw
from benchmarks.coherence.trial import Asked, refused, same
from benchmarks.coherence.written import BESIDE, READ
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.api.saved import plan_file
from meshwright.check.messages import TAKEN
from meshwright.domain.label import label
from meshwright.domain.launch import OFF, launch_words
from meshwright.domain.launching import settings_of
from meshwright.domain.training import Lora
from meshwright.errors import MeshwrightError
from meshwright.frameworks.launching import said_settings
from meshwright.testing.promises import read_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.round_trips.draw import Plan
    from meshwright.api.cases import Setup
    from meshwright.domain.layout import Layout

PLACES = ("query", "key", "value", "output")
WITHOUT_ADAPTERS = {"accelerate", "deepspeed"}
"""Whose training programs decide of adapters."""
ASKED = ("model", "layers", "device", "devices_per_node", "calibration")
"""What every user says beside files: they name the model their own way, and no device."""
UNSAID = {
    "deepspeed": ("sequence", "optimizer"), "accelerate": ("sequence", "optimizer", "gradient_dtype"),
}
"""What files of a framework have no key for (their programs decide it), so that users say it beside them."""
OF_THE_PLAN = (
    "check.memory", "check.memory-tight", "check.host-memory", "check.forced-routing", "mindformers.select-comm",
    "mindspeed-core-ms.select-comm",
)
"""Findings about what was planned, not about how it was written: a drawn plan need not fit."""
FIGURES = ("step_s", "memory_reserved_bytes", "memory_fit_probability", "mfu_ratio")


def asked(plan: Plan) -> Iterator[Asked]:
    """Every law of one plan."""
    folder = Path(tempfile.mkdtemp(prefix="round-trips-"))
    try:
        yield from _tried(plan, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(plan: Plan, folder: Path) -> Iterator[Asked]:
    given = setup({**plan.request, "framework": plan.release}, Faults())
    layout = given.layout(plan.label)
    planned = mw.estimate(given.case, layout)
    saved = folder / "saved"
    saved.mkdir()
    (saved / "plan.yaml").write_text(plan_file(given.request, planned).text, encoding="utf-8")
    try:
        again = mw.estimate(mw.EstimateRequest(request=saved / "plan.yaml")).estimate
    except MeshwrightError as error:
        yield Asked("a saved plan is estimated again", refused(error))
        return
    yield Asked("a saved plan is estimated again", _figures(planned, again))
    try:
        exported = mw.export(mw.ExportRequest(plan=saved, to=plan.release, out=folder / "out"))
    except MeshwrightError as error:
        yield Asked("a legal plan is exported", refused(error))
        return
    yield Asked("a legal plan is exported")
    out = folder / "out"
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and "probe" not in path.relative_to(out).parts
             and path.name not in BESIDE and path.suffix in READ]
    yield Asked("export writes what launches", "" if files else f"{exported.files}")
    if given.case.training.lora is not None and plan.release.partition("@")[0] not in WITHOUT_ADAPTERS:
        yield Asked("adapters come back on what carried them", _adapters(given, layout))
    if files:
        yield from _imported(plan, given, layout, planned, files, folder)


def _imported(plan: Plan, given: Setup, layout: Any, planned: Any, files: list[Path], folder: Path) -> Iterator[Asked]:
    """What ``import`` and ``check`` say of the files."""
    options = {name: given.request[name] for name in ASKED if name in given.request}
    paths = [str(path) for path in files]
    try:
        alone = mw.import_(mw.ImportRequest(files=paths)).taken
        found = mw.import_(mw.ImportRequest(files=paths, from_=plan.release, **options)).taken
    except MeshwrightError as error:
        yield Asked("import reads the files that export wrote", refused(error))
        return
    yield Asked("import reads the files that export wrote")
    name = plan.release.partition("@")[0]
    others = " ".join(str(each) for each in alone.reading.source.remarks if each.id == "import.taken")
    shown = alone.framework.name == name or given.framework.title in others
    yield Asked("files show whose they are, or that they may be others'", "" if shown else others or alone.framework.name)
    told = [f"{each.id} {each.path}: {each}" for each in found.reading.source.remarks if each.id not in TAKEN]
    yield Asked("import understands all that export wrote", "; ".join(told)[:400])
    yield Asked("import maps all that export wrote", "; ".join(f"{each.id}: {each}" for each in found.reading.messages)[:400])
    expected = given.framework.normal(given.case, layout)
    said = found.reading.layout
    yield Asked("the files say the layout", _other(expected, said))
    if name in UNSAID:
        options |= {key: given.request[key] for key in UNSAID[name] if key in given.request}
        found = mw.import_(mw.ImportRequest(files=paths, from_=plan.release, **options)).taken
    yield Asked("the files and the model make a case", ", ".join(found.missing) + "; ".join(map(str, found.impossible)))
    if found.case is None or said is None:
        return
    yield Asked("the files say the case", _case(given, found.case))
    own = said_settings(found.reading.said.launch)
    has = OFF | settings_of(found.case.case)
    wanted = {key: value for key, value in settings_of(given.case).items() if has.get(key) != value}
    notes = {str(each.values.get("name")) for each in given.framework.told(given.case).remarks}
    silent = [f"{key}={value}, read as {own.get(key)}" for key, value in wanted.items() if key not in notes]
    yield Asked("a setting of the launch that comes back otherwise is noted", "; ".join(silent))
    if wanted:  # as the notes of export say: what files do not carry is given beside them
        options["launch"] = launch_words(wanted)
    try:
        checked = mw.check(mw.CheckRequest(files=paths, from_=plan.release, **options)).checked
    except MeshwrightError as error:
        yield Asked("check reads the files that export wrote", refused(error))
        return
    yield Asked("check reads the files that export wrote")
    slow = "deterministic=on" in str(plan.request.get("launch"))  # what was asked for, and is said to be slow
    found_wrong = [f"{each.message.id} {each.message.path}: {each.message.words}" for each in checked.findings
                   if each.severity != "advice" and each.message.id not in OF_THE_PLAN
                   and not (slow and each.message.id.endswith((".slow-variable", ".deterministic")))]
    yield Asked("check finds nothing wrong in what export wrote", "; ".join(found_wrong)[:500])
    if checked.estimate is None:
        yield Asked("check prices the files", "; ".join(checked.skipped)[:300])
        return
    yield Asked("check prices the files")
    if expected == layout == said:
        yield Asked("check says the plan's figures", _figures(planned, checked.estimate))
    try:
        mw.import_(mw.ImportRequest(files=paths, from_=plan.release, save=folder / "again.yaml", **options))
        last = mw.estimate(mw.EstimateRequest(request=folder / "again.yaml")).estimate
    except MeshwrightError as error:
        yield Asked("what import saves is estimated as check says", refused(error))
        return
    yield Asked("what import saves is estimated as check says", _figures(checked.estimate, last))


def _adapters(given: Setup, layout: Layout) -> str:
    """Which adapters come back otherwise, of those that the framework writes: a saved plan has only the usual ones."""
    runner, odd, dense = given.framework, [], not given.case.model.is_moe
    for lora in (Lora(), Lora(rank=8), *((Lora(rank=64, targets=PLACES), Lora(rank=4, targets=PLACES[:3])) if dense else ())):
        case = replace(given.case, training=replace(given.case.training, lora=lora))
        if runner.check(case, layout):
            continue
        said = read_back(runner, case, runner.write(case, layout)).said
        odd += [f"{lora} -> {said.lora}, {said.task}"] if (said.lora, said.task) != (lora, "lora") else []
    return "; ".join(odd)


def _figures(one: Any, other: Any) -> str:
    """Where two estimates say different figures."""
    return "; ".join(f"{name}: {getattr(one, name):.9g} and {getattr(other, name):.9g}" for name in FIGURES
                     if not same(getattr(one, name), getattr(other, name))) if one.fits is not None or other else ""


def _other(expected: Any, said: Any) -> str:
    """How a layout differs from what was written."""
    if said is None:
        return "none"
    odd = [f"{each.name}: {getattr(said, each.name)}, written {getattr(expected, each.name)}" for each in fields(expected)
           if getattr(said, each.name) != getattr(expected, each.name)]
    return f"{label(said, overlap=None)}: {'; '.join(odd)}" if odd else ""


def _case(given: Setup, found: Setup) -> str:
    """What of the case comes back otherwise: devices, batch, numbers, task, implementation."""
    one, other = given.case, found.case
    pairs = {
        "devices": (one.cluster.num_devices, other.cluster.num_devices),
        "devices of a node": (one.cluster.devices_per_node, other.cluster.devices_per_node),
        "global batch": (one.batch.global_batch_sequences, other.batch.global_batch_sequences),
        "sequence": (one.batch.sequence_tokens, other.batch.sequence_tokens),
        "precision": (one.training.precision.name, other.training.precision.name),
        "gradients": (one.training.precision.gradient_bytes, other.training.precision.gradient_bytes),
        "task": (one.training.task, other.training.task),
        "optimizer": (one.training.optimizer.name, other.training.optimizer.name), "lora": (one.training.lora, other.training.lora),
        "implementation": (one.implementation.name, other.implementation.name), "model": (one.model, other.model),
    }
    return "; ".join(f"{name}: {wrote} -> {read}" for name, (wrote, read) in pairs.items() if wrote != read)[:400]
