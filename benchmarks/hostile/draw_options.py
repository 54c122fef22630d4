"""Hostile options: numbers, names, and command lines that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hostile import atoms
from benchmarks.hostile.case import Case, with_option
from benchmarks.hostile.commands import Command, command

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

KNOBS = (
    "tp",
    "cp",
    "pp",
    "vp",
    "ep",
    "etp",
    "dp",
    "mb",
    "zero",
    "shard",
    "recompute=full:",
    "layers=",
    "recompute=",
    "schedule=",
    "overlap=",
    "offload=",
)
CLAIMS = ("tokens_per_s", "tokens_per_s_per_device", "tflops_per_device", "mfu", "step_s", "memory_gb", "samples_per_s")


def number_option(rng: random.Random, world: World) -> Case:
    """A hostile number in a numeric option of any verb."""
    verb = world.verb(rng)
    base = command(rng, verb)
    option = world.option(rng, verb, "number") or world.option(rng, verb, "name", "file")
    assert option is not None
    return _case("number in an option", base, with_option(base.arguments, option.name, atoms.as_argument(atoms.number(rng))))


def number_word(rng: random.Random, world: World) -> Case:
    """A hostile number inside a word: of a layout, a pin, a claim, an anchor, a distribution."""
    number = atoms.as_argument(atoms.number(rng))
    verb = rng.choice(("estimate", "explain", "fix", "balance", "plan", "plan", "estimate", "check", "dryrun"))
    base = command(rng, verb)
    if verb == "check":
        return _case("number in a word", base, (*base.arguments, "--claim", f"{rng.choice(CLAIMS)}={number}"))
    if verb == "plan":
        if rng.random() < 0.5:
            return _case("number in a word", base, (*base.arguments, "--compare", f"tp2 {rng.choice(KNOBS)}{number}"))
        knob = rng.choice(KNOBS)
        return _case("number in a word", base, (*base.arguments, "--pin", f"{knob if '=' in knob else knob + '='}{number}"))
    if verb == "estimate" and rng.random() < 0.4:
        return _case(
            "number in a word",
            base,
            (*base.arguments, "--anchor-memory", rng.choice((f"0={number}", f"{number}=70GB", f"{number}"))),
        )
    knob = rng.choice(KNOBS)
    listed = f"[{number},{number};1]" if knob.endswith("=") and rng.random() < 0.5 else number
    return _case("number in a word", base, with_option(base.arguments, "--layout", f"tp2 {knob}{listed}"))


def name_option(rng: random.Random, world: World) -> Case:
    """A hostile word in any option that takes one, or in place of the argument."""
    verb = world.verb(rng)
    base = command(rng, verb)
    word = atoms.argument(rng)
    if rng.random() < 0.25:
        place = 1 if len(base.arguments) > 1 and not base.arguments[1].startswith("--") else len(base.arguments)
        return _case("word in an option", base, (*base.arguments[:place], word, *base.arguments[place + 1 :]), rng)
    option = world.option(rng, verb, "name", "file", "output", "number")
    assert option is not None
    if option.kind == "output" and "/" in word:
        word = atoms.as_name(word)
    if option.metavar in ("KNOB=VALUE", "NAME=VALUE", "WHAT=BYTES") and rng.random() < 0.7:
        word = rng.choice((f"{word}=1", f"tp={word}", f"0={word}"))
    if "@" in option.metavar and rng.random() < 0.5:
        word = f"megatron@{word}"
    return _case("word in an option", base, with_option(base.arguments, option.name, word), rng)


def no_command_line(rng: random.Random, world: World) -> Case:
    """Command lines that are none: unknown verbs and options, values missing, twice, too many, empty."""
    verb = world.verb(rng)
    base = command(rng, verb)
    words, word = list(base.arguments), atoms.argument(rng)
    match rng.randrange(10):
        case 0:
            words[0] = word
        case 1:
            words.insert(rng.randrange(len(words) + 1), f"--{word}")
        case 2:
            words.insert(rng.randrange(len(words) + 1), word)
        case 3:
            del words[rng.randrange(1, len(words)) :]
        case 4:
            words = [words[0]]
        case 5:
            words += words[1:]
        case 6:
            words += [rng.choice(("--json", "-x", "--", "--json=", "--json=1", "--nodes", "--no-json", "--JSON", "-h", "--hel"))]
        case 7:
            words[1:1] = [word] * 200
        case 8:
            words = [f"{each}{word}" if each.startswith("--") else each for each in words]
        case _:
            words = rng.choice(
                (
                    [],
                    [""],
                    ["--"],
                    [verb, ""],
                    [verb, "--", *words[1:]],
                    ["--version", verb],
                    [verb[:-1]],
                    [verb.upper()],
                    [verb, "-"],
                )
            )
    return Case(verb=verb, kind="no command line", setup=base.setup, arguments=tuple(words))


def several_options(rng: random.Random, world: World) -> Case:
    """Two to six faults at once in options."""
    verb = world.verb(rng)
    base = command(rng, verb)
    arguments = base.arguments
    for _ in range(rng.randint(2, 6)):
        option = world.option(rng, verb, *rng.choice((("number",), ("name",), ("number", "name", "file"), ("flag", "number"))))
        if option is None:
            continue
        if option.kind == "flag":
            arguments = with_option(arguments, option.name, None)
        else:
            arguments = with_option(
                arguments, option.name, atoms.as_argument(atoms.number(rng) if rng.random() < 0.6 else atoms.text(rng))
            )
    return _case("several options", base, arguments, rng)


def _case(kind: str, base: Command, arguments: tuple[str, ...], rng: random.Random | None = None) -> Case:
    """A case of a spoiled command line; some of those with words also write files, so that the words reach them."""
    if rng is not None and base.output and base.output not in arguments and base.output != "--apply" and rng.random() < 0.5:
        arguments = (*arguments, base.output, "written")
    changing = base.inputs if "--apply" in arguments else ()
    return Case(verb=base.arguments[0], kind=kind, setup=base.setup, arguments=arguments, may_change=changing)


GENERATORS = ((number_option, 12), (number_word, 8), (name_option, 12), (no_command_line, 4), (several_options, 7))
