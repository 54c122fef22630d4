"""Cases that once broke the program, each drawn with other words and numbers around what broke it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hostile import atoms
from benchmarks.hostile import documents as d
from benchmarks.hostile.case import Case, Stream, write
from benchmarks.hostile.commands import CASE, FRAMEWORKS, LAYOUT, case_of, held

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

HUGE = ("1000000000", "999999999999", "9223372036854775807", "1e15", "100000000", "9" * 20)
SAVE = ("plan", *CASE, "--save")


def known(rng: random.Random, world: World) -> Case:
    """One of them."""
    huge, command = rng.choice(HUGE), atoms.command(rng)
    stages = ("balance", "layers.json", "--stages", "4", "--microbatches", "8", "--memory-mb", "60000")
    match rng.randrange(18):
        case 0:
            verb = rng.choice(("plan", "estimate", "explain", "fix"))
            layout = LAYOUT if verb != "plan" else ()
            return _known((), (verb, *CASE, *layout, "--spare-nodes", huge))
        case 1:
            option = rng.choice(("--nodes", "--devices", "--global-batch", "--sequence", "--top", "--layers", "--devices-per-node"))
            return _known((), ("plan", *CASE, option, huge))
        case 2:
            option = rng.choice(("--stages", "--microbatches", "--virtual-stages", "--sequence-splits", "--time-limit", "--hop"))
            return _known((held("layers.json"),), (*stages, option, rng.choice((huge, "1000", "100000"))))
        case 3:
            chunks = ",".join(map(str, range(1, rng.choice((5, 9, 13, 200)))))
            return _known((held("layers.json"),), (*stages, "--virtual-stages", chunks))
        case 4:
            config = d.changed(d.HF_CONFIG, ("_name_or_path",),
                rng.choice((f"llama\n{command} #", "llama\ntouch canary #", "a\0b", "\ud800")))
            save = ("--framework", rng.choice(tuple(FRAMEWORKS)), "--save", "out")
            work = ("--device", rng.choice(("h100-sxm", "ascend-910b")), "--nodes", "1", "--global-batch", "64", "--sequence",
                "4096")
            return _known((write("config.json", d.dumped(config)),), ("plan", "config.json", *work, *save))
        case 5:
            digits = rng.choice(("0x" + "f" * 100000, "9" * 5001, "1e999999999", "0b" + "1" * 50000))
            content = f"cfg.model.num_layers = {digits}\n" if rng.random() < 0.5 else f"model.num_layers={digits} \\\n"
            arguments = (rng.choice(("check", "import")), rng.choice(("f.py", "f.sh", "f.yaml")), "--from",
                rng.choice(("bridge", "megatron", "torchtitan")))
            return _known((f"{{ {write('f', content).rpartition(' > ')[0]}; }} > {arguments[1]}",), arguments)
        case 6:
            return _known((held("layers.json"),), (*stages, "--time-limit", "2", "--picture", "same", "--trace",
                rng.choice(("same", "./same"))))
        case 7:
            writing = (("calibrate", "--runs", "runs.csv"), ("calibrate", "--runs", "runs.csv", "--out", "mine"), ("validate",
                "runs.csv", "--rows", "mine"))
            return _known((held("runs.csv"), "echo mine > calibration.json; echo mine > mine"), rng.choice(writing))
        case 8:
            option = rng.choice(("--picture", "--trace", "--save"))
            return _known((held("layers.json"), "echo mine > mine"), (*stages, "--time-limit", "2", option, "mine"))
        case 9:
            return _known(("mkdir -p o/train.sh/x; echo mine > o/plan.yaml",), (*SAVE, "o", "--force"), may_change=("o/plan.yaml",))
        case 10:
            return _known(("ln -s l l",), rng.choice(((*SAVE, "l"), (*SAVE, "l/x"), ("plan", "l", *CASE[1:]), ("estimate",
                "--request", "l"))))
        case 11:
            long = rng.choice(("a" * 300, "名" * 100, "a/" * 2000, "a" * 255 + ".yaml"))
            verb = rng.choice((("profile", "--quick", "--minutes", "0.01", "--out", long), (*SAVE, long), ("plan", long, *CASE[1:]),
                ("rehearse", "--out", long)))
            return _known((), verb)
        case 12:
            return _known((), rng.choice((("plan", "nomodel"), ("plan", *CASE, "--nodes", "0"), ("nonsense",))),
                err=rng.choice((Stream.FULL, Stream.CLOSED)))
        case 13:
            out = rng.choice((Stream.FULL, Stream.CLOSED, Stream.GONE))
            files = FRAMEWORKS["megatron"]
            fix = ("fix", *files, "--from", "megatron", *case_of("megatron")[1:5], "--model", "llama3-8b", "--memory", "30GB",
                "--apply", "--json")
            return _known(('cp -r "$FIXTURES/megatron/." .',), fix, out=out, may_change=files)
        case 14:
            return _known((), ("validate",), signal=rng.choice(("INT", "TERM")), after_s=round(rng.uniform(0.2, 8.0), 2))
        case 15:
            word = rng.choice(("a\nb", "=1", "\x1b[31m", "../x", "", "a" * 5000, "\u202ex", "\udce2\udc80"))
            return _known((held("runs.csv"),), ("calibrate", "--runs", "runs.csv", "--out", "c.json",
                rng.choice(("--name", "--version")), word))
        case 16:
            return _known((), (rng.choice(("plan", "estimate")), *CASE, "--tokens", huge, "--deadline-days",
                rng.choice(("1e-9", "0.001", "40")), "--min-devices"))
        case _:
            cell = rng.choice(("=cmd|' /C calc'!A0", "+1+canary()", "@SUM(1)", "\t=1", "-1+canary()"))
            table = d.table([d.row(1), d.row(2, id=cell), d.row(3, source=cell)])
            return _known((write("runs.csv", table),), ("validate", "runs.csv", "--rows", "rows.csv"))


def _known(setup: tuple[str, ...], arguments: tuple[str, ...], **how: object) -> Case:
    return Case(verb=arguments[0], kind="once broken", setup=setup, arguments=arguments, **how)  # type: ignore[arg-type]


GENERATORS = ((known, 20),)
