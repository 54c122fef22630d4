"""The answer of ``diagnose``: the verdict, where the step went, the findings with what to change, what was read.

All is said from the document (``DiagnoseAnswer.to_picture``), in which hosts, keys and paths are blanked where that was asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Run, Section, figure, line, pieces, table
from meshwright.report.redacted import blanked
from meshwright.report.runs import closest_line
from meshwright.words import gib, integer, percent, plural, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.api.verbs.diagnose import DiagnoseAnswer
    from meshwright.report.blocks import Block, Paragraph, Table, Told, Tone

    View = Mapping[str, Any]

VERDICTS: Mapping[str, tuple[str, Tone]] = {
    "normal": ("normal: as fast as predicted, or faster", "good"),
    "slow": ("slow: slower than predicted", "warn"),
    "failed": ("failed", "bad"),
    "hung": ("hung", "bad"),
    "unknown": ("no verdict: nothing to compare it with", ""),
}
TONES: Mapping[str, Tone] = {"error": "bad", "warning": "warn", "advice": "accent"}
PARTS = (
    ("compute_ratio", "compute"),
    ("communication_exposed_ratio", "communication"),
    ("waiting_ratio", "waiting"),
    ("bubble_ratio", "bubble"),
    ("data_ratio", "data"),
    ("host_ratio", "host"),
    ("idle_ratio", "idle"),
    ("other_ratio", "other"),
)
PHASES = {
    "log_probs": "log probabilities", "old_log_probs": "log probabilities, old",
    "reference_log_probs": "log probabilities, reference", "critic": "training, critic", "actor": "training, actor",
    "weights": "weights to the engine",
}
"""Phase -> its words, where its name is not."""
BAR = 40
MOST = 12
"""Findings that a terminal shows."""
EVIDENCE, REMEDIES = 3, 4
"""Of a finding that are said."""


def told_of(answer: DiagnoseAnswer) -> tuple[Told, ...]:
    """What a terminal prints."""
    view = answer.to_picture()
    told = (*told_of_view(view), *closest_line(answer.closest), *read_lines(view))
    return tuple(blanked(told)) if answer.redact else told


def told_of_view(view: View) -> Iterator[Told]:
    """Verdict and figures, the split, findings worst first, guides' thresholds."""
    said, tone = VERDICTS[view["verdict"]]
    yield line(Run(said, tone, bold=True))
    if any(figures := figures_of(view)):
        yield pieces(*figures)
    yield from beside_lines(view)
    if view["split"] is not None:
        yield split_section(view)
    if view["phases"] is not None:
        yield phases_section(view)
    if view["expected"]:
        yield expected_table(view)
    for each in view["findings"][:MOST]:
        head, *below = finding_lines(each)
        yield replace(head, above=each is view["findings"][0])
        yield from below
    if (more := len(view["findings"]) - MOST) > 0:
        yield line(f"and {plural(more, 'finding')} more: --json has all", kind="small")
    if not view["findings"]:
        yield line("nothing found that costs time or memory", above=True)
    if guides := tuple(guide_lines(view)):
        yield Section(title="The guides' thresholds", blocks=guides)


def figures_of(view: View) -> list[tuple[Run, ...]]:
    """What was seen, in figures."""
    seen, found = view["observed"], list[tuple[Run, ...]]()
    if seen["step_s"] is not None:
        ends = (seen["step_low_s"], seen["step_high_s"])
        span = [Run(" ("), figure(ends[0], seconds), Run(" to "), figure(ends[1], seconds), Run(")")] if seen["steady"] > 1 else []
        found.append((figure(seen["step_s"], seconds), Run(" a step"), *span))
    if seen["steady"] or view["dropped"]:
        dropped = f", {view['dropped']} of warming up left out" if view["dropped"] else ""
        found.append((Run(f"{plural(seen['steady'], 'step')}{dropped}"),))
    if seen["tokens_per_s_per_device"] is not None:
        found.append((figure(seen["tokens_per_s_per_device"], rate), Run(" tokens/s/device")))
    if seen["tflops_per_device"] is not None:
        speed = seen["tflops_per_device"]
        found.append((Run(f"{speed:,.1f}", value=speed, unit="TFLOP/s"), Run(" TFLOP/s/device")))
    if seen["mfu_ratio"] is not None:
        found.append((Run("MFU "), figure(seen["mfu_ratio"], percent)))
    if seen["memory_bytes"] is not None:
        found.append((figure(seen["memory_bytes"], gib), Run(" reserved at most")))
    if seen["devices"] is not None:
        found.append((Run(plural(seen["devices"], "device")),))
    return found


def beside_lines(view: View) -> Iterator[Paragraph]:
    """Bandwidths that benchmarks reached, and the model with its layout."""
    for each in view["bandwidths"][:MOST]:
        ranks = f" of {each['ranks']:,} ranks" if each["ranks"] else ""
        bus = f"{each['bus_bytes_per_s'] / 1e9:.3g} GB/s of bus bandwidth at most"
        yield line(f"{each['operation']}{ranks}: {bus}, with messages of {each['message_bytes']:,.0f} bytes", indent=2)
    if view["label"] is not None:
        model = f"{view['model']}   " if view["model"] else ""
        yield line(f"{model}{view['label']}", kind="small", indent=2)


def split_section(view: View) -> Section:
    """Where the step went, part by part."""
    split = view["split"]
    blocks: list[Block] = []
    by_dimension = ", ".join(f"{key} {seconds(value)}" for key, value in split["communication_exposed"].items() if value)
    for name, word in PARTS:
        ratio = split[name]
        if ratio is None or (not ratio and name != "compute_ratio"):
            continue
        bar = "\u2588" * max(0, min(BAR, round(ratio * BAR)))
        within = f"  ({by_dimension})" if by_dimension and word == "communication" and not split["waiting_ratio"] else ""
        share = Run(f"{percent(ratio):>7}", value=ratio, unit="ratio")
        blocks.append(line(f"{word:<14}", share, f"  {bar}{within}", indent=2, whole=True))
    if by_dimension and split["waiting_ratio"]:
        blocks.append(line(f"exchanges, waits in them: {by_dimension}", kind="small", indent=2))
    if split["communication_exposed_ratio"] is None:
        words = "communication is not known: neither a kernel nor a timer of it was recognised"
        blocks.append(line(words, kind="small", indent=2))
    return Section(title=f"Where a step of {seconds(split['step_s'])} goes, by {split['about']}", blocks=tuple(blocks))


def phase_rows(view: View) -> list[tuple[str, float, float]]:
    """Phases of a step of reinforcement learning: words, seconds, share of the step."""
    found = view["phases"]
    rows = [(PHASES.get(each["phase"], each["phase"]), each["time_s"], each["ratio"]) for each in found["phases"]]
    if found["other_s"] is not None:
        rows.append(("other", found["other_s"], found["other_s"] / found["step_s"]))
    return rows


def phases_title(view: View) -> str:
    """What the phases are of."""
    return f"An RL step of {seconds(view['phases']['step_s'])}, phase by phase, by {view['phases']['about']}"


def phases_section(view: View) -> Section:
    """A step of reinforcement learning, phase by phase."""
    rows = phase_rows(view)
    wide = max(len(name) for name, *_ in rows)
    blocks: list[Block] = []
    for name, spent, ratio in rows:
        bar = "\u2588" * max(0, min(BAR, round(ratio * BAR)))
        took = Run(f"{seconds(spent):>9}", value=spent, unit="s")
        share = Run(f"{percent(ratio):>9}", value=ratio, unit="ratio")
        blocks.append(line(f"{name:<{wide}}", took, share, f"  {bar}", indent=2, whole=True))
    blocks += [replace(each, indent=2) for each in phase_lines(view)]
    return Section(title=phases_title(view), blocks=tuple(blocks))


def phase_lines(view: View) -> Iterator[Paragraph]:
    """What stands below the phases: figures that are of one of them, or of responses."""
    found = view["phases"]
    if found["other_s"] is None:
        yield line("phases go on beside each other: together they take longer than the step", kind="small")
    said: list[tuple[str | Run, ...]] = []
    if found["response_mean_tokens"] is not None:
        longest = found["response_most_tokens"]
        tail = () if longest is None else (", the longest ", figure(longest, integer))
        said.append(("tokens of a response: mean ", figure(found["response_mean_tokens"], integer), *tail))
    if found["optimizer_steps"] is not None:
        said.append((plural(round(found["optimizer_steps"]), "optimizer step"),))
    if found["actor_mfu_ratio"] is not None:
        said.append(("MFU of the actor's update ", figure(found["actor_mfu_ratio"], percent)))
    if found["host_bytes"] is not None:
        said.append(("memory of the host in use ", figure(found["host_bytes"], gib)))
    yield from (line(*each, kind="small") for each in said)


def expected_table(view: View) -> Table:
    """Parts of the step beside their predictions."""
    rows = []
    for part, each in view["expected"].items():
        if each["observed_s"] is None and part != "step":
            continue
        between = "" if each["interval"] is None else " to ".join(map(seconds, each["interval"]))
        seen = "?" if each["observed_s"] is None else figure(each["observed_s"], seconds)
        rows.append((part, seen, figure(each["predicted_s"], seconds), between))
    return table(("part", "observed", "predicted", "90 % lie within"), rows, right=(1, 2, 3), look="headed", indent=0, above=True)


def worth(each: View) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """What a finding costs, and what would be won by which change; nothing where nobody knows."""
    loss, gain = each["loss_ratio"], each["predicted_gain_ratio"]
    lost = () if loss is None else (figure(loss, percent), Run(" lost"))
    if not gain:
        return lost, ()
    if each["gain_is_bound"]:
        return lost, (Run("at most ", "good"), figure(gain, percent, tone="good"), Run(" less without it", "good"))
    return lost, (figure(gain, percent, tone="good"), Run(f" less with {each['change']}", "good"))


def evidence_words(each: View) -> list[str]:
    """What shows a finding, and where that stands."""
    said = []
    for one in each["evidence"][:EVIDENCE]:
        where = f"{one['file']}:{one['line']}" if one["line"] else one["file"] or ""
        said.append(f"{one['text']}  {where}".strip())
    return said


def finding_lines(each: View) -> Iterator[Paragraph]:
    """What it is and what it costs, what shows it, what helps."""
    severity = each["severity"]
    lost, won = worth(each)
    yield line(
        Run(f"{severity:<8}", TONES[severity], bold=severity == "error"), Run(each["id"], "strong"),
        *([Run("  "), *lost] if lost else []), *([Run("   "), *won] if won else []),
    )
    yield line(each["message"], indent=8)
    for said in evidence_words(each):
        yield line(said, kind="small", indent=8)
    for remedy in each["remedy"][:REMEDIES]:
        yield line(f"\u2192 {remedy}", indent=8)


def guide_lines(view: View) -> Iterator[Paragraph]:
    """Which thresholds of the guides hold."""
    for each in view["guides"]:
        if each["observed_ratio"] is None:
            continue
        tone: Tone = "warn" if each["holds"] is False else ""
        verdict, least = ("open", "at least ") if each["holds"] is None else ("holds" if each["holds"] else "fails", "")
        yield line(
            Run(f"{verdict:<6} {each['says']}: {least}", tone), figure(each["observed_ratio"], percent, tone=tone),
            Run(f"  ({each['source']})", tone), indent=2,
        )
    if any(each["observed_ratio"] is not None and each["holds"] is None for each in view["guides"]):
        words = "open: timers count what layers exchange (tensor, context, expert parallelism) as compute"
        yield line(words, kind="small", indent=2)


def read_lines(view: View) -> Iterator[Paragraph]:
    """Which files were read, as what, and which were not; notes."""
    read, left = view["read"], view["left"]
    said = [line(f"read {each['file']}: {', '.join(each['formats'])}", kind="small", whole=True) for each in read[:MOST]]
    if len(read) > MOST:
        said.append(line(f"and {plural(len(read) - MOST, 'file')} more", kind="small"))
    said += [
        line(f"left {each['file']}: {each['why']}" if each["file"] else f"left {each['why']}", kind="small", whole=True)
        for each in left[:MOST]
    ]
    said += [line(f"note: {note}", kind="small") for note in view["notes"]]
    for place, each in enumerate(said):
        yield replace(each, above=not place)
