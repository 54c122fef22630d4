"""Sections that several pages have: the figures of a layout, its memory, its time down to the formulas, and how it was asked."""

from __future__ import annotations

import platform
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.redact import redacted
from meshwright.documents.quoting import word
from meshwright.estimate.figures import figures
from meshwright.report.blocks import (
    Block,
    Code,
    Folded,
    Paragraph,
    Section,
    Tile,
    Tiles,
    View,
    flat,
    words,
)
from meshwright.report.estimate import term_table
from meshwright.report.headline import LIKELY, UNCALIBRATED, case_header, headline, standing
from meshwright.report.page.drawn import Parted
from meshwright.report.page.plots import plot
from meshwright.report.page.theme import OF_STYLE
from meshwright.report.stages import PARTS, host_memory, shown, stage_memory
from meshwright.report.timesplit import parts_of, time_split
from meshwright.units import GIB
from meshwright.version import __version__
from meshwright.words import chance, gib, percent, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate

NOT_ASKED = ("html", "force")
"""Options that say where an answer goes, not what is asked."""
MOST_FILES = 40
MOST_FILE_CHARACTERS = 60_000
"""Of a file that stands on a page; the whole is what ``export`` writes."""


def case_line(case: Case) -> str:
    """``llama3-70b on 512 x h100-sxm, 1,024 x 8,192 tokens a step``."""
    batch, cluster = case.batch, case.cluster
    step = f"{batch.global_batch_sequences:,} x {batch.sequence_tokens:,} tokens a step"
    return f"{case.model.name} on {cluster.num_devices:,} x {cluster.device.name}, {step}"


def asked_section(case: Case) -> Section:
    """Model, cluster, batch and numbers."""
    return Section(title="What was asked", blocks=tuple(case_header(case)))


def tiles(estimate: Estimate) -> Tiles:
    """The figures of a layout in large letters, each with its interval."""
    steps = estimate.interval.step_s if estimate.interval else None
    level = estimate.interval.level if estimate.interval else 0.0
    between = "" if steps is None else f"{seconds(steps[0])} to {seconds(steps[1])} in {percent(level, 0)} of runs"
    unsure = UNCALIBRATED.lower() if not estimate.calibrated else ""
    reserved, capacity = estimate.memory_reserved_bytes, estimate.memory_capacity_bytes
    over = reserved > capacity
    room = f"short of {gib(reserved - capacity)}" if over else f"{gib(capacity - reserved)} left"
    shown_tiles = [
        Tile(name="step", value=seconds(estimate.step_s), remark=between or unsure),
        Tile(name="MFU", value=percent(estimate.mfu_ratio), remark=f"HFU {percent(estimate.hfu_ratio)}"),
        Tile(name="tokens/s/device", value=rate(estimate.tokens_per_s_per_device),
             remark=f"{rate(estimate.tokens_per_s)} tokens/s"),
        Tile(name="memory, fullest device", value=gib(reserved), tone="bad" if over else "",
             remark=f"of {gib(capacity)}, {room}"),
    ]
    if estimate.interval is not None:
        fits, finishes = estimate.memory_fit_probability, estimate.fit_probability
        shown_tiles.append(Tile(name="fits in memory", value=chance(fits), tone="bad" if fits < LIKELY else "",
                                remark=f"a run finishes: {chance(finishes)}" if finishes else "refused by the framework"))
    if estimate.linearity_ratio is not None:
        baseline = estimate.linearity_baseline_devices
        shown_tiles.append(Tile(name="linearity", value=f"{estimate.linearity_ratio:.2f}",
                                remark=f"against {baseline} devices" if baseline else ""))
    return Tiles(tiles=tuple(shown_tiles))


def more_figures(case: Case, estimate: Estimate) -> Folded:
    """Every other figure of the headline, and what stands behind all of them."""
    return Folded(title="All figures, and what stands behind them",
                  blocks=(*headline(estimate), *standing(case, estimate)))


def memory_section(estimate: Estimate) -> Section:
    """Stacked bars of the stages against the capacity, then the table, and the host's."""
    stages = shown(estimate)
    rows = [
        Parted(name=f"stage {each.stage}", parts=tuple(getattr(each.memory, name) / GIB for name, *_ in PARTS),
               word=gib(each.memory.reserved_bytes), over=each.memory.reserved_bytes > estimate.memory_capacity_bytes)
        for each in stages
    ]
    capacity = estimate.memory_capacity_bytes
    hidden = len(estimate.stages) - len(stages)
    more = f" {hidden} stages between are not shown." if hidden else ""
    chart = plot(
        "stacked", rows=rows, parts=[(name, OF_STYLE[style]) for name, _, style in PARTS],
        title="Memory by stage against the capacity", limit=capacity / GIB, limit_word=f"usable {gib(capacity)}",
        caption=f"Memory of one device of each stage at its peak; the dashed line is what the trainer may use.{more}",
    )
    return Section(title="Memory by stage", blocks=(
        chart, Folded(title="As a table", blocks=flat(stage_memory(estimate))),
        *(Folded(title=f"{each.title}  {each.remark}", blocks=each.blocks) for each in host_memory(estimate)),
    ))


def time_section(estimate: Estimate) -> Section:
    """Where the step goes: each cause beginning where the one before ends; then every term with its formula."""
    total = estimate.time.total_s()
    parts = [
        (part.name, part.value, f"{seconds(part.value)} \u00b7 {percent(part.value / total)}", OF_STYLE.get(part.style, ""))
        for part in parts_of(estimate) if part.value > 0
    ]
    chart = plot(
        "waterfall", parts=parts, title="Where the step goes",
        caption=f"Exposed seconds on the busiest stage; they sum to the step of {seconds(total)}.",
    )
    return Section(title="Where the step goes", blocks=(
        chart, Folded(title="As a table", blocks=flat(time_split(estimate))[1:]),
        Folded(title="Down to the formulas: every term of the figures",
               blocks=(*flat(term_table(estimate), headed=True), *_formulas(estimate))),
    ))


def _formulas(estimate: Estimate) -> Iterator[Block]:
    """What each formula that occurs says of itself: equation, symbols, range, source."""
    names = sorted({term.formula for terms in figures(estimate).values() for term in terms if term.formula})
    for name in names:
        if text := _said_of(name):
            yield Folded(title=name.removeprefix("meshwright."), blocks=(Code(text=text),))


def _said_of(formula: str) -> str:
    """The docstring of a formula by its dotted name; nothing where nothing of the package has that name."""
    module, _, name = formula.removeprefix("meshwright.").rpartition(".")
    while module:
        try:
            found: Any = import_module(f"meshwright.{module}")
        except ModuleNotFoundError:
            module, _, first = module.rpartition(".")
            name = f"{first}.{name}"
            continue
        for each in name.split("."):
            found = getattr(found, each, None)
        return getdoc(found) or "" if callable(found) or isinstance(found, property) else ""
    return ""


def files_section(files: Sequence[Any], title: str = "Launch files", remark: str = "") -> Section | None:
    """Files as they would be written, the first ones open to be read."""
    if not files:
        return None
    blocks = [
        Folded(title=each.path, blocks=(Code(text=_short(each.text.rstrip("\n")), name=each.path),)) for each in files[:MOST_FILES]
    ]
    more = [Paragraph(words=words(f"and {len(files) - MOST_FILES} more files"), kind="small")] if len(files) > MOST_FILES else []
    return Section(title=title, remark=remark, blocks=(*blocks, *more))


def _short(text: str) -> str:
    if len(text) <= MOST_FILE_CHARACTERS:
        return text
    return f"{text[:MOST_FILE_CHARACTERS]}\n... ({len(text) - MOST_FILE_CHARACTERS:,} characters more)"


def launch_section(given: Any, estimate: Estimate) -> Section | None:
    """The launch files of a layout, where its framework writes any and can run it."""
    from meshwright.api.launch_files import launch_files
    from meshwright.errors import MeshwrightError

    if given.framework.writer is None:
        return None
    try:
        files = launch_files(given, estimate.layout, estimate)
    except MeshwrightError as error:
        return Section(title="Launch files", blocks=(Paragraph(words=words(f"{given.framework.title} cannot run it: {error}")),))
    return files_section(files, remark=f"{given.framework.title} {given.framework.version}".strip())


def reproduce(answer: Any, verb: str) -> Section:
    """The command, the versions, and what the figures rest on."""
    request = answer.asked
    blocks: list[Block] = []
    if request is not None:
        said = command_of(request, verb)
        blocks.append(Code(text=redacted(said) if getattr(answer, "redact", False) else said, name="Command"))
    versions = [f"meshwright {__version__}", f"Python {platform.python_version()}"]
    given: Any = getattr(answer, "given", None)
    if (case := getattr(given, "case", None)) is not None:
        versions += [f"calibration {case.calibration.label}", f"implementation {case.implementation.name}"]
        framework = given.framework
        versions.append(given.title if isinstance(framework, str) else f"{framework.title} {framework.version}".strip())
    blocks.append(Paragraph(words=words(", ".join(versions)), kind="small"))
    return Section(title="How to have it again", blocks=tuple(blocks))


def command_of(request: Any, verb: str) -> str:
    """The command line that asks the same; a value of Python stands by its kind."""
    pieces = ["meshwright", verb]
    options: list[str] = []
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if value is None or value is False or value in ((), [], {}) or field.name in NOT_ASKED:
            continue
        if field.kind.startswith("argument"):
            pieces += [_word(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
        elif field.kind == "flag":
            options.append(field.option)
        else:
            options += [f"{field.option} {_word(each)}" for each in _several(value)]
    line = " ".join(pieces)
    for each in options:
        line += f" {each}" if len(line) - (line.rfind("\n") + 1) + len(each) < 96 else f" \\\n  {each}"
    return line


def _several(value: object) -> list[object]:
    if isinstance(value, dict):
        return [f"{key}={each}" for key, each in value.items()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _word(value: object) -> str:
    """A value as a word of the shell."""
    if isinstance(value, tuple):  # a window, parsed
        return str(word(":".join(map(str, value))))
    plain = isinstance(value, (str, int, float, Path))
    return str(word(str(value) if plain else f"<{type(value).__name__}>"))


def page(verb: str, title: str, **more: Any) -> View:
    """A page whose sections that are nothing are left out."""
    sections = tuple(each for each in more.pop("sections") if each is not None and each.blocks)
    return View(verb=verb, title=title, sections=sections, **more)


def notes_of(texts: Sequence[str]) -> tuple[Paragraph, ...]:
    """Lines that must not be missed."""
    return tuple(Paragraph(words=words(each), kind="note") for each in texts)
