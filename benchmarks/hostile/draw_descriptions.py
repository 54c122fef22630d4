"""Hostile descriptions: names that want to be code, numbers that no machine has, in every kind of file that is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.hostile import atoms
from benchmarks.hostile import documents as d
from benchmarks.hostile.case import Case, quoted, write
from benchmarks.hostile.commands import CASE, FRAMEWORKS, LAYOUT, WORK, case_of, command, device_of, held, taken

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

STAGES = ("--stages", "4", "--microbatches", "8", "--memory-mb", "60000", "--time-limit", "3")


def name_written(rng: random.Random, world: World) -> Case:
    """A hostile name of a model, device, cluster or folder in a description whose plan is written out for a framework."""
    framework, name = rng.choice(tuple(FRAMEWORKS)), atoms.command(rng) if rng.random() < 0.6 else atoms.text(rng)
    save = ("--framework", framework, "--top", "1", "--save", "out")
    match rng.randrange(7):
        case 0 | 1:
            config = d.changed(rng.choice((d.HF_CONFIG, d.MOE_CONFIG)), ("_name_or_path",), name)
            return _names((write("config.json", d.dumped(config)),), ("plan", "config.json", *_work(framework), *save))
        case 2:
            folder = quoted(f"./{atoms.as_name(name)}")
            config = {key: value for key, value in d.HF_CONFIG.items() if key != "_name_or_path"}
            setup = (f"mkdir -p {folder}", write("config.json", d.dumped(config)), f"mv config.json {folder}/")
            return _names(setup, ("plan", f"./{atoms.as_name(name)}/config.json", *_work(framework), *save))
        case 3:
            model = d.renamed(d.MODEL, ("models", "my-model"), name)
            return _names((write("model.yaml", d.dumped(model)),), ("plan", "model.yaml", *_work(framework), *save))
        case 4:
            place = rng.choice((("devices", "my-gpu"), ("clusters", "my-cluster"), ("sources", "ours")))
            cluster = d.renamed(d.CLUSTER, place, name)
            if place[0] == "devices":
                cluster = d.changed(cluster, ("clusters", "my-cluster", "device"), name)
            elif place[0] == "clusters":
                cluster["devices"]["my-gpu"]["cluster"] = name
            setup = (write("cluster.yaml", d.dumped(cluster)),)
            return _names(
                setup, ("plan", "llama3-8b", "--cluster", "cluster.yaml", "--global-batch", "32", "--sequence", "2048", *save)
            )
        case 5:
            line = rng.choice(
                ("  model: ", "  device: ", "layout: ", "  precision: ", "  framework: ", "  calibration: ")
            ) + d.dumped(name)
            world.framework("megatron")
            setup = ('cp "$FIXTURES/megatron/plan.yaml" .', _line_after(line, "plan.yaml"))
            return Case(
                verb="export",
                kind="name written out",
                setup=setup,
                arguments=("export", "plan.yaml", "--to", framework, "--out", "out"),
            )
        case _:
            config = d.changed(
                d.HF_CONFIG,
                (rng.choice(("architectures", "model_type", "hidden_act", "torch_dtype", "transformers_version", "auto_map")),),
                name,
            )
            return _names((write("config.json", d.dumped(config)),), ("plan", "config.json", *_work(framework), *save))


def name_shown(rng: random.Random, world: World) -> Case:
    """A hostile name in a description that is only shown, drawn or kept: layer files, measured runs, requests, calibrations."""
    name = atoms.text(rng)
    match rng.randrange(8):
        case 0:
            layers = d.changed(
                d.SAPP, rng.choice((("name",), ("layers_description", 1, "name"), ("layers_description", 0, "name"))), name
            )
            output = rng.choice((("--picture", "p.svg"), ("--trace", "t.json"), ("--save", "out"), ("--json",), ()))
            return _shown("balance", (write("layers.json", d.dumped(layers)),), ("balance", "layers.json", *STAGES, *output))
        case 1:
            manual = (
                d.renamed(d.MANUAL, ("mine",), name) if rng.random() < 0.5 else d.changed(d.MANUAL, ("mine", "file_name"), name)
            )
            setup = (held("layers.json"), write("manual.yaml", d.dumped(manual)))
            return _shown("balance", setup, ("balance", "layers.json", *STAGES, "--manual", "manual.yaml"))
        case 2 | 3:
            cell = rng.choice(
                (
                    "id",
                    "source",
                    "framework",
                    "framework_version",
                    "model",
                    "gpu",
                    "notes",
                    "recompute",
                    "flag",
                    "status",
                    "task",
                    "mem_kind",
                )
            )
            table = d.table([d.row(1), d.row(2, **{cell: name}), d.row(3)])
            verb = rng.choice(("validate", "calibrate"))
            arguments = (
                ("validate", "runs.csv", "--rows", "rows.csv")
                if verb == "validate"
                else ("calibrate", "--runs", "runs.csv", "--out", "c.json")
            )
            return _shown(verb, (write("runs.csv", table),), (*arguments, *rng.choice(((), ("--json",)))))
        case 4:
            key = rng.choice(tuple(d.REQUEST))
            request = d.renamed(d.REQUEST, (key,), name) if rng.random() < 0.3 else d.changed(d.REQUEST, (key,), name)
            verb = rng.choice(("plan", "estimate", "explain"))
            return _shown(verb, (write("request.yaml", d.dumped(request)),), (verb, "--request", "request.yaml"))
        case 5:
            label = atoms.as_argument(name)
            setup = (held("runs.csv"),)
            if rng.random() < 0.5:
                return _shown(
                    "calibrate",
                    setup,
                    ("calibrate", "--runs", "runs.csv", "--out", "c.json", rng.choice(("--name", "--version")), label),
                )
            return _shown(
                "profile", (), ("profile", "--quick", "--minutes", "0.01", "--ranks", "1", "--out", "m.yaml", "--name", label)
            )
        case 6:
            config = d.changed(d.HF_CONFIG, ("_name_or_path",), name)
            verb = rng.choice(("estimate", "explain", "catalog"))
            arguments = (
                ("catalog", "runs", "--near", "config.json", "--device", "h100-sxm")
                if verb == "catalog"
                else (verb, "config.json", *WORK, *LAYOUT)
            )
            return _shown(verb, (write("config.json", d.dumped(config)),), (*arguments, *rng.choice(((), ("--json",)))))
        case _:
            cluster = d.renamed(d.CLUSTER, ("clusters", "my-cluster"), name)
            cluster["devices"]["my-gpu"]["cluster"] = name
            setup = (write("cluster.yaml", d.dumped(cluster)),)
            verb = rng.choice(("estimate", "explain", "plan"))
            layout = LAYOUT if verb != "plan" else ()
            return _shown(
                verb, setup, (verb, "llama3-8b", "--cluster", "cluster.yaml", "--global-batch", "32", "--sequence", "2048", *layout)
            )


def value_in_description(rng: random.Random, world: World) -> Case:
    """One to three values of a description replaced by hostile ones, removed, or under another key."""
    return _described(rng, rng.choice((1, 1, 1, 2, 3)), "value in a description")


def many_in_description(rng: random.Random, world: World) -> Case:
    """Up to a dozen faults of one description at once."""
    return _described(rng, rng.randint(4, 12), "many in a description")


def _described(rng: random.Random, faults: int, kind: str) -> Case:
    """A description with so many spoiled values, read by a verb that takes it."""

    def spoil(document: dict[str, Any]) -> str:
        for _ in range(faults):
            document = d.spoiled(rng, document, atoms.value(rng))
        return d.dumped(document)

    batch = ("--global-batch", "32", "--sequence", "2048")
    reader = rng.choice(("estimate", "plan", "explain", "fix"))
    layout = LAYOUT if reader != "plan" else ("--top", "2")
    layout = (*layout, "--faster", "1%") if reader == "fix" else layout
    name, content, arguments = rng.choice((
        lambda: ("config.json", spoil(rng.choice((d.HF_CONFIG, d.MOE_CONFIG))), (reader, "config.json", *WORK, *layout)),
        lambda: ("model.yaml", spoil(d.MODEL), (reader, "model.yaml", *WORK, *layout)),
        lambda: ("cluster.yaml", spoil(d.CLUSTER), (reader, "llama3-8b", "--cluster", "cluster.yaml", *batch, *layout)),
        lambda: ("layers.json", spoil(d.SAPP), ("balance", "layers.json", *STAGES)),
        lambda: ("dry.yaml", spoil(d.DRY_RUNS), ("balance", "dry.yaml", *STAGES)),
        lambda: ("manual.yaml", spoil(d.MANUAL), ("balance", "layers.json", *STAGES, "--manual", "manual.yaml")),
        lambda: ("training.yaml", spoil(d.TRAINING), ("balance", "layers.json", *STAGES, "--sequence-splits", "2",
            "--training-config", "training.yaml")),
        lambda: ("measured.yaml", spoil(d.MEASURED), ("balance", *CASE, "--layout", "tp2 pp4 mb1 zero1", "--measured",
            "measured.yaml", "--time-limit", "3")),
        lambda: ("request.yaml", spoil(d.REQUEST), (rng.choice(("estimate", "plan", "explain", "dryrun")), "--request",
            "request.yaml")),
    ))()
    setup = (write(name, content), *((held("layers.json"),) if arguments[1] == "layers.json" and name != "layers.json" else ()))
    return Case(verb=arguments[0], kind=kind, setup=setup, arguments=arguments)


def value_in_a_framework_file(rng: random.Random, world: World) -> Case:
    """A word of a framework's file replaced: what ``check``, ``import`` and ``fix`` read, and ``export --onto`` edits."""
    verb = rng.choice(("check", "import", "fix", "fix"))
    base = taken(rng, verb)
    framework = base.arguments[base.arguments.index("--from") + 1]
    name = rng.choice(base.inputs)
    lines = world.text(framework, name).splitlines()
    setup, arguments = list(base.setup), base.arguments
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.choice([at for at, line in enumerate(lines, 1) if re.search(r"\d", line) and not line.lstrip().startswith("#")])
        word = atoms.number(rng) if rng.random() < 0.5 else atoms.text(rng)
        numbers = list(re.finditer(r"\d+(\.\d+)?", lines[place - 1]))
        spot = rng.choice(numbers)
        setup.append(_line(lines[place - 1][: spot.start()] + word + lines[place - 1][spot.end() :], place, name))
    if verb == "fix" and rng.random() < 0.5:
        arguments = (*arguments, "--apply")
    return Case(
        verb=verb,
        kind="value in a framework file",
        setup=tuple(setup),
        arguments=arguments,
        may_change=base.inputs if "--apply" in arguments else (),
    )


def value_in_a_plan(rng: random.Random, world: World) -> Case:
    """A value of a saved plan replaced."""
    world.framework("megatron")
    text = world.text("megatron", "plan.yaml").splitlines()
    place = rng.choice([at for at, line in enumerate(text, 1) if ": " in line and not line.startswith("#")])
    word = atoms.number(rng) if rng.random() < 0.6 else d.dumped(atoms.value(rng))
    setup = ('cp "$FIXTURES/megatron/plan.yaml" .', _line(text[place - 1].split(": ", 1)[0] + ": " + word, place, "plan.yaml"))
    arguments = rng.choice((
        ("export", "plan.yaml", "--to", rng.choice(tuple(FRAMEWORKS)), "--out", "out"), ("estimate", "--request", "plan.yaml"),
        ("plan", "--request", "plan.yaml"),
        ("balance", "plan.yaml", "--time-limit", "3"), ("explain", "--request", "plan.yaml"),
    ))
    return Case(verb=arguments[0], kind="value in a plan", setup=setup, arguments=arguments)


def out_of_memory_text(rng: random.Random, world: World) -> Case:
    """``fix --oom`` with a message that says impossible things."""
    amount = atoms.as_argument(atoms.number(rng))
    message = rng.choice((
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {amount} GiB. GPU 0 has a total capacity of {amount} GiB "
        f"of which {amount} MiB is free.",
        f"CUDA out of memory. Tried to allocate 2.00 GiB (GPU {amount}; 79.15 GiB total capacity; {amount} GiB already allocated; "
        "1 GiB free; 70 GiB reserved in total)",
        atoms.argument(rng), f"out of memory: {amount}",
    ))
    base = command(rng, "fix")
    return Case(verb="fix", kind="number in a word", setup=base.setup, arguments=(*base.arguments, "--oom", message))


def _names(setup: tuple[str, ...], arguments: tuple[str, ...]) -> Case:
    return Case(verb="plan", kind="name written out", setup=setup, arguments=arguments)


def _shown(verb: str, setup: tuple[str, ...], arguments: tuple[str, ...]) -> Case:
    return Case(verb=verb, kind="name shown", setup=setup, arguments=arguments)


def _work(framework: str) -> tuple[str, ...]:
    return case_of(framework)[1:-2] if device_of(framework) == "ascend-910b" else WORK


def _line(text: str, place: int, name: str) -> str:
    """The line that replaces line ``place`` of a file."""
    return f"printf '%s\\n' {quoted(text.replace(chr(0), ''))} > .line; sed -i -e '{place}r .line' -e '{place}d' {name}; rm .line"


def _line_after(text: str, name: str) -> str:
    """The line that replaces the line of the same key."""
    key = text.split(": ", 1)[0]
    above = "request" if key.startswith(" ") else "meshwright_plan"
    printed = f"printf '%s\\n' {quoted(text)} > .line"
    return f"sed -i '/^{key}: /d' {name}; {printed}; sed -i -e '/^{above}:/r .line' {name}; rm .line"


GENERATORS = (
    (name_written, 16), (name_shown, 8), (value_in_description, 12), (many_in_description, 4), (value_in_a_framework_file, 9),
    (value_in_a_plan, 5),
    (out_of_memory_text, 2),
)
