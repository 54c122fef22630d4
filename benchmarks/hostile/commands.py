"""Verbs, their options as ``--help`` prints them, and well-formed command lines to spoil."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.hostile import documents as d

if TYPE_CHECKING:
    import random

VERBS = (
    "plan", "estimate", "explain", "balance", "export", "import", "check", "fix", "calibrate", "profile", "rehearse", "step",
    "dryrun", "validate", "catalog", "diagnose", "compare", "lint", "episode",
)
MEASURING = ("profile", "rehearse", "step", "dryrun")
"""They run something for as long as it takes; what is drawn for them is mostly refused before that."""
OUTPUTS = ("--save", "--out", "--rows", "--picture", "--trace", "--samples", "--html", "--sarif", "--store", "--events")
FRAMEWORKS = {
    "megatron": ("train.sh",), "bridge": ("launch.sh",), "megatron-deepspeed": ("train.sh", "ds_config.json"),
    "deepspeed": ("ds_config.json",),
    "chatlearn": ("grpo.yaml",), "mindspeed-core-ms": ("config.yaml",), "mindformers": ("config.yaml",),
    "mindspeed-llm": ("launch.sh",),
    "nanotron": ("config.yaml",), "picotron": ("config.json",), "torchtitan": ("launch.sh",),
    "accelerate": ("accelerate_config.yaml",),
}
"""Framework -> the files of a plan of it that ``check`` reads."""
_OPTION = re.compile(r"^(--[a-z][a-z-]*)\s+(\S+)")
_NUMBERS = ("N", "TOKENS", "P", "M", "X", "V", "K", "S", "R", "T", "W", "RATIO", "DAYS", "PRICE", "BYTES")


@dataclass(frozen=True, slots=True)
class Option:
    """An option and what stands for its value in the help."""

    name: str
    metavar: str

    @property
    def kind(self) -> str:
        """flag, output, file, number or name."""
        if self.metavar == "<bool>":
            return "flag"
        if self.name in OUTPUTS:
            return "output"
        if "FILE" in self.metavar or "CSV" in self.metavar or self.metavar in ("MODEL", "DIR"):
            return "file"
        return "number" if self.metavar in _NUMBERS else "name"


def options(help_text: str) -> tuple[Option, ...]:
    """The options of a verb from its help, without ``--help``."""
    lines = (line.strip("│ \t") for line in help_text.splitlines())
    found = (Option(*match.groups()) for line in lines if (match := _OPTION.match(line)))
    return tuple(each for each in found if each.name != "--help")


@dataclass(frozen=True, slots=True)
class Command:
    """A well-formed command line: lines that fill the folder, arguments, files that it takes, where it writes."""

    setup: tuple[str, ...]
    arguments: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    """Files among the arguments that are read."""
    output: str = ""
    """An option that makes it write; ``--apply`` changes the inputs."""


WORK = ("--device", "h100-sxm", "--nodes", "1", "--global-batch", "32", "--sequence", "2048")
CASE = ("llama3-8b", "--layers", "8", *WORK)
EPISODE = (
    "episode", "qwen3-8b", "--device", "h100-sxm", "--nodes", "1", "--prompts", "32", "--responses", "8", "--prompt-tokens", "512",
    "--response-tokens", "1000", "--longest-response", "4096",
)
LAYOUT = ("--layout", "tp2 pp2 mb1 sp zero1")
SMALL = (
    "llama3-8b",
    "--layers",
    "2",
    "--hidden",
    "64",
    "--vocabulary",
    "128",
    "--global-batch",
    "2",
    "--sequence",
    "16",
    "--layout",
    "tp1 mb1",
)


def device_of(framework: str) -> str:
    """A device that a framework runs on."""
    return "ascend-910b" if framework.startswith("mind") else "h100-sxm"


def model_of(framework: str) -> str:
    """A model that a framework trains."""
    return "qwen3-8b" if framework == "chatlearn" else "llama3-8b"


def case_of(framework: str, model: str | None = None) -> tuple[str, ...]:
    """The arguments of a small case of a framework."""
    return (
        model or model_of(framework),
        "--device",
        device_of(framework),
        "--nodes",
        "1",
        "--global-batch",
        "32",
        "--sequence",
        "2048",
        "--framework",
        framework,
    )


def files_of(framework: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that copy the files of a framework's plan into the folder, and the names of those that are read."""
    return (f'cp -r "$FIXTURES/{framework}/." .',), FRAMEWORKS[framework]


def taken(rng: random.Random, verb: str) -> Command:
    """``check``, ``import`` or ``fix`` of a framework's files."""
    framework = rng.choice(tuple(FRAMEWORKS))
    setup, files = files_of(framework)
    place = ("--model", model_of(framework), "--device", device_of(framework), "--nodes", "1")
    if verb == "fix":
        return Command(setup, (verb, *files, "--from", framework, *place, "--faster", "1%"), files, "--apply")
    return Command(setup, (verb, *files, "--from", framework, *place), files, "--save" if verb == "import" else "")


def command(rng: random.Random, verb: str) -> Command:
    """A drawn well-formed command line of a verb."""
    if verb in ("check", "import") or (verb == "fix" and rng.random() < 0.7):
        return taken(rng, verb)
    match verb:
        case "plan":
            return Command((), (verb, *CASE, "--top", "3"), output="--save")
        case "estimate" | "explain" | "fix":
            return Command((), (verb, *CASE, *LAYOUT, *(("--faster", "1%") if verb == "fix" else ())))
        case "export":
            framework = rng.choice(("megatron", "bridge", "deepspeed", "nanotron", "picotron", "accelerate"))
            return Command(
                ('cp "$FIXTURES/megatron/plan.yaml" .',),
                (verb, "plan.yaml", "--to", framework, "--out", "out"),
                ("plan.yaml",),
                "--out",
            )
        case "balance":
            if rng.random() < 0.4:
                return Command(
                    (),
                    (verb, *CASE, "--layout", "tp2 pp4 mb1 sp zero1", "--time-limit", "3"),
                    output=rng.choice(("--save", "--picture")),
                )
            stages = ("--stages", "4", "--microbatches", "8", "--memory-mb", "60000", "--time-limit", "3")
            output = rng.choice(("--save", "--picture", "--trace"))
            return Command((held("layers.json"),), (verb, "layers.json", *stages), ("layers.json",), output)
        case "calibrate":
            return Command((held("runs.csv"),), (verb, "--runs", "runs.csv"), ("runs.csv",), "--out")
        case "validate":
            return Command((held("runs.csv"),), (verb, "runs.csv"), ("runs.csv",), "--rows")
        case "profile":
            return Command((), (verb, "--quick", "--minutes", "0.01", "--ranks", "1"), output="--out")
        case "rehearse":
            return Command(
                (), (verb, "--quick", "--ranks", "1", "--layouts", "1", "--rounds", "1", "--step-seconds", "0.05"), output="--out"
            )
        case "step":
            return Command((), (verb, *SMALL, "--steps", "1", "--warmup", "0"), output="--save")
        case "episode":
            return Command((), EPISODE)
        case "dryrun":
            return Command((), (verb, "llama3-8b", "--layers", "2", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "8",
                "--sequence", "256",
                                "--layout", "tp2 mb1"))
    kind = rng.choice(("devices", "clusters", "models", "frameworks", "runs"))
    if kind == "runs":
        return Command((), ("catalog", "runs", "--near", "llama3-8b", "--device", "h100-sxm", "--nodes", "1"))
    return Command((), ("catalog", kind))


def runs(number: int = 6) -> str:
    """A small table of measured runs."""
    return d.table([d.row(each) for each in range(number)])


def held(name: str) -> str:
    """The line that puts a well-formed document into the folder."""
    return f'cp "$FIXTURES/documents/{name}" .'


def documents() -> dict[str, str]:
    """The well-formed documents by name."""
    described = {
        "config.json": d.HF_CONFIG,
        "model.yaml": d.MODEL,
        "cluster.yaml": d.CLUSTER,
        "layers.json": d.SAPP,
        "request.yaml": d.REQUEST,
    }
    return {"runs.csv": runs(), **{name: d.dumped(document) + "\n" for name, document in described.items()}}
