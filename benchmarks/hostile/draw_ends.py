"""Bad ends: closed and full streams, bare environments, signals at drawn moments, two writers at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.hostile import draw_descriptions, draw_files, draw_options, draw_outputs
from benchmarks.hostile.case import Case, Stream, with_option
from benchmarks.hostile.commands import CASE, FRAMEWORKS, MEASURING, case_of, command, device_of, model_of

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

ENVIRONMENTS: tuple[dict[str, str | None], ...] = (
    {"HOME": None}, {"HOME": "/nowhere"}, {"LANG": "C", "LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"},
    {"COLUMNS": "20"}, {"COLUMNS": "0"}, {"COLUMNS": "-5"}, {"COLUMNS": "99999999"}, {"COLUMNS": "x"}, {"COLUMNS": "1"},
    {"LINES": "0", "COLUMNS": "5"}, {"TERM": "dumb"}, {"TERM": None, "HOME": None, "PATH": None},
    {"TMPDIR": "/nowhere"}, {"FORCE_COLOR": "1", "COLUMNS": "20"}, {"NO_COLOR": "1"}, {"XDG_CACHE_HOME": "/proc",
    "XDG_CONFIG_HOME": "\n"}, {"TZ": "Mars/Phobos"}, {"OMP_NUM_THREADS": "-1"},
    {"USER": "$(touch canary)", "LOGNAME": "$(touch canary)", "HOSTNAME": "x\ntouch canary"}, {"PYTHONWARNINGS": "error"},
    {"LANG": "zh_CN.GBK", "LC_ALL": "zh_CN.GBK"},
)


def stream(rng: random.Random, world: World) -> Case:
    """Standard output or standard error closed, full, or a pipe whose reader has gone; with answers and with refusals."""
    base = _plain(rng, world)
    arguments = (*base.arguments, "--json") if rng.random() < 0.4 and "--json" not in base.arguments else base.arguments
    if rng.random() < 0.1:
        arguments = rng.choice((("--help",), (base.verb, "--help"), ("--version",), (base.verb,), ("nonsense",)))
    out = rng.choice((Stream.CLOSED, Stream.CLOSED, Stream.FULL, Stream.FULL, Stream.GONE, Stream.FILE))
    err = rng.choice(
        (Stream.CLOSED, Stream.FULL, Stream.FULL) if out is Stream.FILE else (Stream.FILE, Stream.FILE, Stream.FULL, Stream.CLOSED)
    )
    return replace(base, kind="stream", arguments=arguments, out=out, err=err, process=rng.random() < 0.15)


def bare_environment(rng: random.Random, world: World) -> Case:
    """No HOME, another language, a terminal of twenty columns: a real process start where the interpreter reads it."""
    base = _plain(rng, world)
    environment = rng.choice(ENVIRONMENTS)
    started = any(name.startswith(("LANG", "LC_", "PYTHON")) for name in environment)
    return replace(
        base, kind="environment", environment=environment, process=started, out=rng.choice((Stream.FILE, Stream.FILE, Stream.TTY))
    )


def terminal(rng: random.Random, world: World) -> Case:
    """Hostile words on a terminal: no control sequence but colours may pass."""
    generator = rng.choice(
        (
            draw_descriptions.name_shown,
            draw_options.name_option,
            draw_descriptions.name_written,
            draw_files.special_file,
            draw_outputs.hostile_path,
        )
    )
    return replace(generator(rng, world), kind="terminal", out=Stream.TTY, err=Stream.TTY)


def signalled(rng: random.Random, world: World) -> Case:
    """SIGTERM, SIGINT, SIGHUP or SIGKILL at a drawn moment, most of them into a command that writes."""
    name = rng.choice(("TERM", "TERM", "INT", "INT", "HUP", "KILL"))
    if rng.random() < 0.3:
        base = _plain(rng, world) if rng.random() < 0.7 else _from_command(rng, rng.choice(MEASURING))
        process = rng.random() < 0.5
        limit = 0.6 if process and rng.random() < 0.5 else 4.0 if base.verb in MEASURING else 1.0
        return replace(
            base,
            kind="signal",
            signal=name if name != "KILL" else "TERM",
            after_s=round(rng.uniform(0.02, limit), 3),
            process=process,
        )
    at_write = rng.random() < 0.75
    moment = rng.choice((0.0, rng.uniform(0, 0.002), rng.uniform(0, 0.02))) if at_write else rng.uniform(0.0, 1.2)
    return replace(_writing(rng), kind="signal", signal=name, after_s=round(moment, 4), at_write=at_write, whole=True)


def together(rng: random.Random, world: World) -> Case:
    """Two commands write into one folder at once."""
    one, two = rng.sample(tuple(FRAMEWORKS), 2)
    setup = rng.choice(((), (), (f'mkdir o; cp -r "$FIXTURES/{one}/." o',)))
    force = ("--force",) if setup or rng.random() < 0.3 else ()
    arguments = ("plan", *case_of(one), "--save", "o", *force)
    beside = ("plan", *case_of(two), "--save", "o", *force)
    if rng.random() < 0.3:
        setup = ('cp "$FIXTURES/megatron/plan.yaml" .',)
        arguments, beside = (
            ("export", "plan.yaml", "--to", each, "--out", "o", *force)
            for each in rng.sample(("megatron", "bridge", "deepspeed", "nanotron", "accelerate"), 2)
        )
    return Case(
        verb=arguments[0],
        kind="two at once",
        setup=setup,
        arguments=arguments,
        beside=beside,
        after_s=round(rng.choice((0.0, rng.uniform(0, 0.5))), 3),
        may_change=("o",),
        whole=True,
    )


def several_faults(rng: random.Random, world: World) -> Case:
    """Faults of several classes at once: a spoiled description, hostile options, a bad stream, a file in the way."""
    draw = rng.choice(
        (
            draw_descriptions.value_in_description,
            draw_descriptions.name_written,
            draw_files.file_option,
            draw_files.special_file,
            draw_files.measured_runs,
            draw_outputs.obstacle,
        )
    )
    case = draw(rng, world)
    arguments = case.arguments
    for _ in range(rng.randint(1, 3)):
        other = draw_options.name_option(rng, world) if rng.random() < 0.4 else draw_options.number_option(rng, world)
        option = world.option(rng, case.verb, "number", "name")
        if option is not None:
            arguments = with_option(arguments, option.name, other.arguments[-1])
    streams = {
        "out": rng.choice((Stream.FILE, Stream.FILE, Stream.CLOSED, Stream.FULL)),
        "err": rng.choice((Stream.FILE, Stream.FILE, Stream.FILE, Stream.FULL)),
    }
    return replace(case, kind="several faults", arguments=arguments, **streams)


def _from_command(rng: random.Random, verb: str) -> Case:
    """A well-formed case of a verb."""
    base = command(rng, verb)
    return Case(verb=verb, kind="", setup=base.setup, arguments=base.arguments)


def _plain(rng: random.Random, world: World) -> Case:
    """A well-formed case, or one that is refused, of a verb that does not measure."""
    while True:
        case = draw_options.number_option(rng, world) if rng.random() < 0.3 else _from_command(rng, world.verb(rng))
        if case.verb not in MEASURING:
            return case


def _writing(rng: random.Random) -> Case:
    """A case that writes: a new folder or file, or over an earlier answer, or in place."""
    framework = rng.choice(tuple(FRAMEWORKS))
    match rng.randrange(6):
        case 0 | 1:
            return Case(verb="plan", kind="", arguments=("plan", *case_of(framework), "--save", "o"))
        case 2:
            setup = (f'mkdir o; cp -r "$FIXTURES/{framework}/." o',)
            return Case(verb="plan", kind="", setup=setup, arguments=("plan", *CASE, "--save", "o", "--force"), may_change=("o",))
        case 3:
            return Case(
                verb="export",
                kind="",
                setup=('cp "$FIXTURES/megatron/plan.yaml" .',),
                arguments=("export", "plan.yaml", "--to", "bridge", "--out", "o"),
            )
        case 4:
            base = command(rng, rng.choice(("balance", "validate")))
            return Case(verb=base.arguments[0], kind="", setup=base.setup, arguments=with_option(base.arguments, base.output, "o"))
        case _:
            files = FRAMEWORKS[framework]
            model, device = model_of(framework), device_of(framework)
            place = ("--model", model, "--device", device, "--nodes", "1", "--memory", "30GB", "--apply")
            return Case(
                verb="fix",
                kind="",
                setup=(f'cp -r "$FIXTURES/{framework}/." .',),
                arguments=("fix", *files, "--from", framework, *place),
                may_change=files,
            )


GENERATORS = ((stream, 12), (bare_environment, 7), (terminal, 8), (signalled, 12), (together, 4), (several_faults, 12))
