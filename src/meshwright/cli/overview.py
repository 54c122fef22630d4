"""The verbs, and ``meshwright --help`` from them: printed without any library, so that it is there at once."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PURPOSE = "Find, explain and write out the fastest training configuration for a large model on a cluster."
VERSION = "Print the version."
VERBS = {
    "plan": "Search every layout for a model on a cluster; the best ones, ranked and explained.",
    "estimate": "Predict one layout: memory by stage, time by cause, MFU.",
    "explain": "Say why a layout is as fast as it is, and where the rest goes.",
    "balance": "Put layers on pipeline stages and choose what each recomputes, so that a step is shortest and all fits.",
    "pack": "Put samples of unequal length into micro-batches under a limit of tokens, and find the best limit.",
    "episode": "Predict a step of reinforcement learning: generation, log-probabilities and training, in one picture.",
    "export": "Write a plan as the files of a framework.",
    "import": "Read the files of a framework as a layout, and say what they leave open.",
    "check": "Judge the files of a framework: mistakes, memory, waste, claims.",
    "fix": "Find the smallest change that makes a configuration fit, faster, smaller or legal.",
    "diagnose": "Say from logs, traces and dumps what a run lost, to what, and what to change.",
    "compare": "Say what changed between two runs that happened, and why.",
    "lint": "Say what an expert would of scripts, environments and configurations before they run; mend what is safe.",
    "calibrate": "Fit the physical constants to measured runs, yours or the corpus that ships.",
    "profile": "Measure this machine or allocation by micro-benchmarks, and write a cluster file.",
    "rehearse": "Profile this machine, plan a small model for it, run the layouts, and set measured beside predicted.",
    "sweep": "Run given layouts for real, here or under a scheduler, each once, whatever happens on the way.",
    "tune": "Find the fastest layout in the fewest trials, for real or among recorded runs.",
    "step": "Run the reference training step of one layout on this machine: time, tokens/s, MFU, memory.",
    "dryrun": "Run one rank's training step on fake devices: memory, FLOPs and messages, beside the cost model's.",
    "validate": "Score the predictions against measured runs that no fit has seen.",
    "atlas": "Map the best plan of every model on every number of nodes, predicted or measured: MFU, memory, layout, linearity.",
    "catalog": "List and show devices, clusters, models, frameworks, implementations, and what others measured.",
}
"""Verb -> what it does. ``cli.command`` says what its module in ``meshwright.cli`` has."""
OPTIONS = {"--version": VERSION, "--help": "Show this message and exit."}
NARROWEST, WIDEST = 50, 78


def overview(columns: int) -> str:
    """What ``meshwright --help`` prints on a terminal of so many columns, as Typer would."""
    width = max(min(columns - 2, WIDEST), NARROWEST)
    lines = ["Usage: meshwright [OPTIONS] COMMAND [ARGS]...", "", *_wrapped(PURPOSE, 2, width), ""]
    for title, table in (("Options:", OPTIONS), ("Commands:", VERBS)):
        lines += [title, *_listed(table, width), ""]
    return "\n".join(lines[:-1]) + "\n"


def columns_here() -> int:
    """Columns of the terminal: as COLUMNS says, as it says itself, or 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and 0 < len(said) < len("100000") and int(said):
        return int(said)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _listed(table: Mapping[str, str], width: int) -> Iterator[str]:
    """Words with what they mean beside them."""
    indent = 2 + max(map(len, table)) + 2
    for word, meaning in table.items():
        first, *rest = _wrapped(meaning, indent, width)
        yield f"  {word}".ljust(indent) + first.lstrip()
        yield from rest


def _wrapped(text: str, indent: int, width: int) -> list[str]:
    """Words on lines of at most ``width`` characters, all indented; a line may end behind a hyphen."""
    lines = [""]
    for word in text.split():
        joint = " "
        for part in word.replace("-", "-\0").split("\0"):
            gap = joint if lines[-1] else ""
            if lines[-1] and indent + len(lines[-1]) + len(gap) + len(part) > width:
                lines.append("")
                gap = ""
            lines[-1] += gap + part
            joint = ""
    return [" " * indent + line for line in lines]
