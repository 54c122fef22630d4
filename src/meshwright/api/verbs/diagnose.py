"""``diagnose``: what a run that happened lost, to what, and what to change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field
from meshwright.api.options import CASE, HTML
from meshwright.api.paged import paged
from meshwright.api.request import Answer, NamedCase, Progress
from meshwright.api.seen_case import Seen, of_files, of_log, of_plan
from meshwright.errors import InputError, fault

if TYPE_CHECKING:
    from meshwright.api.fields import Values
    from meshwright.diagnose import Diagnosis
    from meshwright.errors import Message
    from meshwright.evidence.rows.near import Near
    from meshwright.readers.formats import Observed


def steps_window(text: str) -> tuple[int, int]:
    """``100:200`` as the first and the last step; either side may be open."""
    first, colon, last = text.partition(":")
    if not colon or not all(each == "" or (each.isascii() and each.isdigit() and len(each) < 12) for each in (first, last)):
        raise fault("diagnose.window", "{text!r} is no A:B of two step numbers, as in 100:200", text=text[:40])
    window = (int(first or 0), int(last or 10**12))
    if window[0] > window[1]:
        raise fault("diagnose.window", "{text!r} ends before it begins", text=text[:40])
    return window


class DiagnoseRequest(NamedCase, frozen=True, kw_only=True):
    """What a run left behind, and what is known of the run beside it."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(
            name="files",
            kind="arguments",
            metavar="FILE|DIR...",
            in_file=False,
            help="Logs, traces, dumps and tables of one run, or directories of them; what each is, its content tells.",
        ),
        Field(name="plan", metavar="PLAN", panel="Beside it", in_file=False, help="The saved plan that the run was to follow."),
        Field(
            name="from_",
            metavar="NAME[@VERSION]",
            panel="Beside it",
            in_file=False,
            help="The framework of the run; scripts and configurations among the files are read as its own.",
        ),
        Field(
            name="window",
            parse=steps_window,
            metavar="A:B",
            panel="Beside it",
            in_file=False,
            help="Only these steps count [default: all but those of warming up].",
        ),
        Field(
            name="follow",
            kind="flag",
            panel="Output",
            in_file=False,
            help="Go on reading while the run goes on, and answer again whenever the findings change; ends with the run.",
        ),
        Field(
            name="rows",
            metavar="OUT.csv",
            panel="Output",
            in_file=False,
            help="Write the run as a row of measured runs, for calibrate --runs and validate.",
        ),
        HTML,
        Field(name="force", kind="flag", panel="Output", in_file=False, help="Replace files of --rows and --html that exist."),
        Field(
            name="redact", kind="flag", panel="Output", in_file=False, help="Blank hosts, addresses, keys and paths in the answer."
        ),
        *(replace(field, kind="option", metavar="MODEL", panel="Case") for field in CASE if field.name == "model"),
        *(field for field in CASE if field.name not in ("model", "framework")),
    )

    files: Sequence[str | Path] = ()
    plan: str | Path | None = None
    from_: str | None = None
    window: tuple[int, int] | str | None = None
    follow: bool = False
    rows: str | Path | None = None
    html: str | Path | None = None
    force: bool = False
    redact: bool = False


class DiagnoseAnswer(Answer, frozen=True, kw_only=True):
    """The diagnosis, what was read for it, and what it is compared with."""

    diagnosis: Diagnosis
    observed: Observed
    notes: tuple[Message, ...] = ()
    """What is not known, and why."""
    closest: Near | None = None
    redact: bool = False
    """Whether what is said of it is to be blanked of hosts, keys and paths."""
    saved: str = ""
    """The table of measured runs that was written."""

    @property
    def ok(self) -> bool:
        """Whether the run neither failed nor hung."""
        return self.diagnosis.ok

    def to_json(self) -> dict[str, Any]:
        """The document of ``diagnose --json``."""
        from meshwright.api.views.diagnose import diagnose_view
        from meshwright.diagnose.redact import redacted_document

        view = diagnose_view(self.diagnosis, self.observed, self.notes, self.closest)
        return redacted_document(view) if self.redact else view

    def to_picture(self) -> dict[str, Any]:
        """What is drawn of it: the document, and the steps and ranks beside it."""
        from meshwright.api.views.diagnose import picture_view

        return picture_view(self.diagnosis, self.to_json())


@door
@paged
def diagnose(
    request: DiagnoseRequest, *, progress: Progress | None = None, told: Callable[[DiagnoseAnswer], None] | None = None
) -> DiagnoseAnswer:
    """Read what a run left, and say what it lost.

    ``told``: with ``follow``, called with the answer whenever verdict or findings change, until the run ends.

    Errors:  ``InputError`` with every fault of the request, and where nothing that was given is of a known format.
    """
    faults = Faults()
    values = request.read(faults)
    if not values["files"] and "files" not in faults.failed:
        faults.add("diagnose.files", "FILE is missing: logs, traces, dumps or tables of a run, or a directory of them")
    if "plan" in values and "from_" in values:
        faults.add("diagnose.either", "--plan says all that --from would: one of the two")
    _check_named(values, faults)
    if "rows" in values:
        from meshwright.outputs import obstacles

        faults.note(obstacles([values["rows"]], inputs=[str(each) for each in values["files"]], force=values["force"]))
    faults.check()
    answer = _answered(values, progress)
    if values["follow"]:
        answer = _followed(values, answer, told)
    return _saved(values, answer)


def _check_named(values: Values, faults: Faults) -> None:
    """Note every option that names something which does not exist: a run without a case is read as well, but not by mistake."""
    from meshwright.api.cases import check_names
    from meshwright.api.saved import load_plan
    from meshwright.catalog import load_model
    from meshwright.frameworks import framework

    check_names(values, faults)
    with faults.at("model"):
        if "model" in values:
            load_model(values["model"])
    with faults.at("from_"):
        if "from_" in values:
            framework(values["from_"])
    with faults.at("plan"):
        if "plan" in values:
            load_plan(values["plan"], Faults())
    for path in values["files"]:
        if not Path(path).exists():
            faults.add("file.missing", "no such file", path=str(path))


def _answered(values: Values, progress: Progress | None) -> DiagnoseAnswer:
    """One reading of everything."""
    from meshwright.diagnose import diagnose as judged
    from meshwright.evidence.rows.near import closest

    observed, files = _observed(values, progress)
    seen, notes = _seen(values, Faults(), observed, files)
    run = _run(values, observed, seen)
    near = closest(seen.case) if seen.case is not None and run.step_s is not None and run.phases is None else None
    return DiagnoseAnswer(diagnosis=judged(run), observed=observed, notes=notes, closest=near, redact=values["redact"])


def _followed(values: Values, answer: DiagnoseAnswer, told: Callable[[DiagnoseAnswer], None] | None) -> DiagnoseAnswer:
    """Read again when files grow, at most a tenth of the time, until the run has ended."""
    shown: object = None
    while True:
        if (now := _gist(answer)) != shown and told is not None:
            told(answer)
            shown = now
        ending = answer.diagnosis.run.ending
        if answer.diagnosis.verdict in ("failed", "hung") or (ending is not None and ending.status not in ("running", "unknown")):
            return answer
        before, took_s = _sizes(values), 0.0
        while _sizes(values) == before:
            time.sleep(max(POLL_S, 9.0 * took_s))
        began = time.monotonic()
        answer = _answered(values, None)
        took_s = time.monotonic() - began


POLL_S = 1.0


def _gist(answer: DiagnoseAnswer) -> object:
    """What makes an answer worth telling again."""
    found = answer.diagnosis
    return found.verdict, tuple((each.id, each.severity) for each in found.findings)


def _sizes(values: Values) -> dict[str, int]:
    """Sizes of all files; one that is gone is left out."""
    found: dict[str, int] = {}
    for each in (Path(word) for word in values["files"]):
        for path in sorted(each.rglob("*")) if each.is_dir() else (each,):
            with suppress(OSError):
                found[str(path)] = path.stat().st_size
    return found


def _saved(values: Values, answer: DiagnoseAnswer) -> DiagnoseAnswer:
    """The answer, with its row written where that was asked."""
    if "rows" not in values:
        return answer
    from meshwright.diagnose.rows import row_of
    from meshwright.evidence.rows.written import table_of
    from meshwright.outputs import Output, write

    row = Output(path=str(values["rows"]), text=table_of([row_of(answer.diagnosis.run)]))
    write([row], force=values["force"], inputs=[str(each) for each in values["files"]])
    return replace(answer, saved=str(values["rows"]))


def _observed(values: Values, progress: Progress | None) -> tuple[Observed, list[str]]:
    """What the files say, and those of them that are a framework's own."""
    from meshwright.readers.formats import observe

    count = 0

    def told(_name: str) -> None:
        nonlocal count
        count += 1
        if progress is not None:
            progress("files", count, count)

    paths = [Path(each) for each in values["files"]]
    configurations = [str(each) for each in paths if "from_" in values and each.suffix in CONFIGURATIONS and each.is_file()]
    return observe([each for each in paths if str(each) not in configurations], told), configurations


CONFIGURATIONS = frozenset({".sh", ".yaml", ".yml", ".toml", ".py"})
"""What is a framework's own file where ``--from`` names one: logs are told by their content, scripts by their names."""


def _seen(values: Values, faults: Faults, observed: Observed, files: list[str]) -> tuple[Seen, tuple[Message, ...]]:
    """The case of the run, from the best that is there."""
    if "plan" in values:
        seen = of_plan(values, faults)
    elif files:
        seen = of_files({**values, "files": files}, faults)
    else:
        seen = of_log(values, observed.observations)
    return seen, (*seen.notes, *observed.left)


def _run(values: Values, observed: Observed, seen: Seen) -> Any:
    from meshwright.diagnose import Run
    from meshwright.domain.observed import RunLog
    from meshwright.judging.facts import Facts
    from meshwright.readers.endings import ended

    facts = None
    if seen.case is not None and seen.layout is not None and seen.framework is not None:
        try:
            facts = Facts(seen.case, seen.layout, seen.framework.features, None, seen.framework)
        except InputError:
            facts = None
    device = seen.case.cluster.device if seen.case is not None else _device(values)
    return Run(
        observations=observed.observations,
        window=values.get("window"),
        framework=seen.framework,
        facts=facts,
        bare_layout=seen.layout,
        num_devices=seen.devices,
        settings=seen.settings or {},
        device_memory_bytes=None if device is None else device.memory_bytes,
        peak_flops_per_s=None if device is None else device.peak_flops_per_s.get("bf16", device.peak_flops_per_s.get("fp16")),
        ending=ended([each for each in observed.observations if isinstance(each, RunLog)]),
    )


def _device(values: Values) -> Any:
    from meshwright.catalog import device, load_cluster

    if "cluster" in values:
        return load_cluster(values["cluster"]).device
    return device(values["device"]) if "device" in values else None
