"""Launches that contradict themselves, layout or device; steps of reinforcement learning; runs that cannot all be true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hostile import atoms
from benchmarks.hostile import documents as d
from benchmarks.hostile.case import Case, with_option, write
from benchmarks.hostile.commands import CASE, EPISODE, FRAMEWORKS, LAYOUT, taken

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

MIXTURE = ("qwen3-30b-a3b", "--layers", "8", *CASE[3:])
SETTINGS = (
    "graphs=none", "graphs=partial", "graphs=step", "deterministic=on", "deterministic=off", "attention=auto", "attention=named",
    "host=plain", "routing=balanced", "routing=natural", "dispatcher=flex", "dispatcher=alltoall", "checkpoints=host",
    "checkpoints=device", "optimizer=plain", "vision=frozen", "vision=trained", "offload_layers=9", "offload_layers=-1",
    "offload_layers=1e9", "offload_modules=core_attn+moe_act", "offload_modules=none", "offload_modules=core_attn+core_attn",
    "slice_tokens=7", "slice_tokens=99999999999999", "image_tokens=1", "graphs", "graphs=", "=step", "deterministic=yes", "eager",
    "deepep", "dispatcher=deepep",
)
LAYOUTS = (
    "tp2 pp2 mb1 sp zero1", "tp1 mb1 recompute=full", "tp2 mb1 sp zero1 attention=math", "tp1 mb1 zero3", "tp1 ep8 mb1 zero1",
    "tp8 pp1 mb1 sp compile", "tp2 pp2 mb1 recompute=selective:moe", "tp1 pp8 mb1 offload=optimizer",
)


def launch(rng: random.Random, world: World) -> Case:
    """Two to five settings of a launch beside a layout, most of which contradict each other or do nothing there."""
    words = " ".join(rng.sample(SETTINGS, rng.randint(1, 5)))
    if rng.random() < 0.15:
        words = f"{words} {rng.choice(('graphs', 'routing', 'host'))}={atoms.argument(rng)}"
    verb = rng.choice(("estimate", "explain", "check", "plan"))
    if verb == "check":
        base = taken(rng, verb)
        return Case(verb=verb, kind="launch", setup=base.setup, arguments=(*base.arguments, "--launch", words))
    case = rng.choice((CASE, MIXTURE))
    layout = ("--layout", rng.choice(LAYOUTS)) if verb != "plan" else ("--top", "1")
    if rng.random() < 0.3:
        case = with_option(case, "--device", rng.choice(("a100-80g-sxm", "v100-32g", "ascend-910b", "b200")))
    whose = ("--framework", rng.choice(tuple(FRAMEWORKS))) if rng.random() < 0.5 else ()
    return Case(verb=verb, kind="launch", setup=(), arguments=(verb, *case, *layout, *whose, "--launch", words))


def episode(rng: random.Random, world: World) -> Case:
    """A step of reinforcement learning of hostile numbers, or of numbers that are sound one by one."""
    arguments = EPISODE
    for option in rng.sample(("--prompts", "--responses", "--prompt-tokens", "--response-tokens", "--longest-response", "--updates",
                              "--epochs", "--engine-tp", "--engine-memory", "--engine-running", "--max-tokens", "--nodes"),
                             rng.randint(1, 3)):
        sound = ("1", "2", "3", "7", "64", "8192", "1000000", "0.5", "0.99")
        value = rng.choice(sound) if rng.random() < 0.6 else atoms.as_argument(atoms.number(rng))
        arguments = with_option(arguments, option, value)
    if rng.random() < 0.2:
        arguments = with_option(arguments, "--framework", rng.choice((*FRAMEWORKS, "slime", "verl-fsdp", "nemo-rl-megatron")))
    setup: tuple[str, ...] = ()
    if rng.random() < 0.2:
        text = rng.choice(("", "algorithm: 7\n", "data:\n  train_batch_size: -1\n", f"a: {atoms.text(rng)}\n", "[]", "{"))
        setup, arguments = (write("run.yaml", text),), (*arguments, "--files", "run.yaml")
    return Case(verb="episode", kind="episode", setup=setup, arguments=arguments)


def contradicting_runs(rng: random.Random, world: World) -> Case:
    """Rows of measured runs that say one thing twice, differently: other figures of one run, of one name, of another layout."""
    rows = [d.row(each) for each in range(rng.randint(1, 6))]
    for _ in range(rng.randint(1, 3)):
        row = list(rng.choice(rows))
        for place in rng.sample(range(len(row)), rng.randint(1, 3)):
            row[place] = rng.choice(("0", "-1", "1e300", "nan", "", "1", "tp64 pp64 mb1", "graphs=step graphs=none", "none",
                                     atoms.as_argument(atoms.number(rng))))
        rows.append(row)
    verb = rng.choice((("calibrate", "--runs", "runs.csv"), ("calibrate", "--runs", "runs.csv", "--out", "c.json"),
                       ("validate", "runs.csv"), ("check", "train.sh", "--from", "megatron", "--runs", "runs.csv")))
    if verb[0] == "check":
        verb = ("estimate", *CASE, *LAYOUT, "--runs", "runs.csv") if rng.random() < 0.5 else ("validate", "runs.csv", "--rows", "r")
    return Case(verb=verb[0], kind="contradicting runs", setup=(write("runs.csv", d.table(rows)),), arguments=verb)


GENERATORS = ((launch, 8), (episode, 6), (contradicting_runs, 6))
