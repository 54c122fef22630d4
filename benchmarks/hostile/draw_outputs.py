"""What stands where a command writes: a user's file, a folder, a link, a loop, no room, no right; files edited in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hostile import atoms
from benchmarks.hostile.case import Case, Stream, quoted, with_option
from benchmarks.hostile.commands import FRAMEWORKS, case_of, command, device_of, model_of

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

WRITERS = ("plan", "plan", "export", "export", "import", "balance", "calibrate", "validate")
LATE = ("profile", "rehearse", "step")
"""They write when they have measured: only what they can refuse before is drawn."""
LINKED = "precious"
"""What links in the way of an output lead to: links are followed, so ``--force`` replaces it."""
PLACES = (
    "echo mine > {o}", "echo mine > {o}; chmod 444 {o}", "mkdir {o}; echo mine > {o}/mine", "mkdir {o}; echo mine > {o}/plan.yaml",
    "mkdir {o}; echo mine > {o}/train.sh",
    "mkdir -p {o}/train.sh/x; echo mine > {o}/plan.yaml", "mkdir -p {o}/plan.yaml", "mkdir -p {o}/README.md/x",
    "mkdir {o}; ln -s nowhere {o}/plan.yaml", "ln -s {o} {o}",
    "echo mine > precious; ln -s precious {o}", "echo mine > precious; ln precious {o}", "mkdir theirs; ln -s theirs {o}",
    "ln -s nowhere/x {o}", "mkdir {o}; chmod 555 {o}",
    "mkdir {o}; chmod 000 {o}", "mkfifo {o}", "mknod {o} c 1 7 || mkfifo {o}", "mkdir {o}; mkfifo {o}/plan.yaml",
    "mkdir {o}; ln -s ../precious {o}/plan.yaml; echo mine > precious",
    "mkdir {o}; echo mine > {o}/.meshwright-abc; echo mine > {o}/.meshwright-journal",
    "echo mine > .meshwright-0; mkdir .meshwright-1", "chmod 555 .", "mkdir {o}; echo mine > {o}/launch.sh",
    "mkdir {o}; : > {o}/plan.yaml", "mkdir -p {o}/probe.sh; echo mine > {o}/config.yaml",
    "mkdir {o}; ln -s /proc/1/mem {o}/README.md",
)
NAMES = (
    "o",
    "o",
    "o",
    "no/o",
    "no/such/o",
    "./o/../o",
    "o/",
    "o//x",
    "o.json",
    "o.yaml/",
    "a" * 300,
    "名" * 90,
    "a/" * 1500 + "o",
    ".",
    "..",
    "../o",
    " ",
    "o\nx",
    "o\x1b[31m",
    "\u202eo",
    "-o",
)


def obstacle(rng: random.Random, world: World) -> Case:
    """Something of the user's stands where a command writes."""
    verb = rng.choice(WRITERS) if rng.random() < 0.85 else rng.choice(LATE)
    base = command(rng, verb)
    name = rng.choice(NAMES)
    output = base.output if base.output and base.output != "--apply" else "--out"
    setup = (*base.setup, rng.choice(PLACES).format(o=_plain(name)) if verb not in LATE or rng.random() < 0.9 else ":")
    arguments = with_option(base.arguments, output, name)
    force = rng.random() < 0.25 and any(each.name == "--force" for each in world.options(verb))
    return _case(verb, setup, (*arguments, "--force") if force else arguments, name if force else "")


def written_before(rng: random.Random, world: World) -> Case:
    """The folder holds an earlier answer: untouched, changed by hand, of another framework, with files beside."""
    framework = rng.choice(tuple(FRAMEWORKS))
    touch = rng.choice((":", "echo '# mine' >> o/{f}", "rm o/{f}", "rm o/{f}; mkdir o/{f}", "chmod 400 o/{f}",
        "echo mine > o/notes", "ln -f o/{f} o/other", "cp o/{f} .; ln -sf ../{f} o/{f}",
                        "chmod 000 o/{f}", "printf x > o/plan.yaml", ": > o/{f}")).format(f=FRAMEWORKS[framework][0])
    setup = (f'mkdir o; cp -r "$FIXTURES/{framework}/." o', touch)
    other = framework if rng.random() < 0.6 else rng.choice(tuple(FRAMEWORKS))
    verb = rng.choice(("plan", "plan", "export"))
    arguments = ("plan", *case_of(other), "--save", "o") if verb == "plan" else ("export", "o", "--to", other, "--out", "o")
    if rng.random() < 0.3:
        return _case(verb, setup, (*arguments, "--force"), "o")
    own = (
        ()
        if touch.startswith(("echo '#", "printf x", ": >", "cp"))
        else ("o/plan.yaml", "o/README.md", *(f"o/{each}" for each in (*FRAMEWORKS[framework], "launch.sh", "probe.sh")))
    )
    return Case(verb=verb, kind="output in the way", setup=setup, arguments=arguments, may_change=own)


def same_twice(rng: random.Random, world: World) -> Case:
    """Two outputs of one name, an output that is the input, two files of one name on each other."""
    match rng.randrange(5):
        case 0:
            base = command(rng, "balance")
            return _case("balance", base.setup, (*base.arguments, "--picture", "same", "--trace", "same"))
        case 1:
            base = command(rng, "balance")
            return _case("balance", base.setup, (*base.arguments, "--picture", "o/x", "--save", "o", "--trace", "o/pipeline.svg"))
        case 2:
            setup = ('mkdir a b; cp "$FIXTURES/megatron/train.sh" a/t.sh; cp a/t.sh b/; cp "$FIXTURES/megatron/plan.yaml" .',)
            return _case(
                "export",
                setup,
                (
                    "export",
                    "plan.yaml",
                    "--to",
                    "megatron",
                    "--onto",
                    "a/t.sh",
                    "--onto",
                    rng.choice(("b/t.sh", "a/t.sh", "./a/t.sh")),
                    "--out",
                    "o2",
                ),
            )
        case 3:
            verb = rng.choice(("validate", "calibrate"))
            base = command(rng, verb)
            return _case(verb, base.setup, (*base.arguments, base.output, "runs.csv"))
        case _:
            base = command(rng, rng.choice(("balance", "export")))
            return _case(
                base.arguments[0], base.setup, with_option(base.arguments, base.output, base.inputs[0] if base.inputs else "o")
            )


def onto(rng: random.Random, world: World) -> Case:
    """``export --onto`` a user's file with a BOM, with CRLF, behind a link, or into its own folder."""
    framework = rng.choice(tuple(FRAMEWORKS))
    name = FRAMEWORKS[framework][0]
    how = rng.choice(
        (
            "sed -i '1s/^/\\xef\\xbb\\xbf/' {f}",
            "sed -i 's/$/\\r/' {f}",
            "mv {f} real; ln -s real {f}",
            "chmod 400 {f}",
            "ln {f} hard",
            ":",
            "echo '# mine' >> {f}",
        )
    ).format(f=name)
    setup = (f'cp -r "$FIXTURES/{framework}/." .', how)
    return _case(
        "export",
        setup,
        ("export", "plan.yaml", "--to", framework, "--onto", name, "--out", rng.choice(("o", ".", "./o/../", "o/" + name))),
    )


def applied(rng: random.Random, world: World) -> Case:
    """``fix --apply`` on a file that is a link, has several names, a BOM, CRLF, another owner, no right to write."""
    framework = rng.choice(tuple(FRAMEWORKS))
    files = FRAMEWORKS[framework]
    how = rng.choice((
        "mv {f} real; ln -s real {f}", "ln {f} hard", "chmod 600 {f}", "chmod 444 {f}", "chmod 755 {f}",
        "sed -i '1s/^/\\xef\\xbb\\xbf/' {f}", "sed -i 's/$/\\r/' {f}", "chown 1000:1000 {f} || :",
        "mkdir d; mv {f} d/; ln -s d/{f} {f}", "chmod 555 .", "printf '# end without newline' >> {f}",
        "setfattr -n user.x -v y {f} 2>/dev/null || :", "touch -d 2001-01-01 {f}", "cp {f} {f}.bak", "mkdir .meshwright-x",
    )).format(f=files[0])
    place = ("--model", model_of(framework), "--device", device_of(framework), "--nodes", "1")
    wish = rng.choice(
        (
            ("--memory", "20GB"),
            ("--memory", "30GB"),
            ("--faster", "0.1%"),
            ("--to-devices", "16"),
            ("--oom", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        )
    )
    arguments = ("fix", *files, "--from", framework, *place, *wish, "--apply")
    return Case(verb="fix", kind="file changed in place", setup=(f'cp -r "$FIXTURES/{framework}/." .', how), arguments=arguments,
        may_change=(*files, "real", "hard", f"d/{files[0]}"),
                privileged="chown" in how, out=rng.choice((Stream.FILE, Stream.FILE, Stream.FULL)))


def hostile_path(rng: random.Random, world: World) -> Case:
    """A hostile word as the name of an output, and scripts below it."""
    verb = rng.choice(WRITERS)
    base = command(rng, verb)
    word = f"{atoms.as_name(atoms.text(rng))}{rng.choice(('', '', '/o'))}"
    if verb == "plan" and rng.random() < 0.5:
        framework = rng.choice(tuple(FRAMEWORKS))
        return _case(verb, (), ("plan", *case_of(framework), "--top", "1", "--save", f"./{word}"))
    output = base.output if base.output and base.output != "--apply" else "--out"
    return _case(verb, base.setup, with_option(base.arguments, output, word if rng.random() < 0.5 else f"./{word}"))


def no_room(rng: random.Random, world: World) -> Case:
    """A quota of file size that ends in the middle of a file (``ulimit -f``)."""
    base = command(rng, rng.choice(WRITERS))
    output = base.output if base.output and base.output != "--apply" else "--out"
    return Case(
        verb=base.arguments[0],
        kind="output in the way",
        setup=base.setup,
        arguments=with_option(base.arguments, output, "o"),
        file_limit_kib=rng.choice((0, 1, 4)),
    )


def _plain(name: str) -> str:
    """A name as the lines of set-up write it."""
    return quoted(f"./{name}".rstrip("/") or ".")


def _case(verb: str, setup: tuple[str, ...], arguments: tuple[str, ...], changed: str = "") -> Case:
    own = (changed, LINKED) if changed else ()
    return Case(verb=verb, kind="output in the way", setup=setup, arguments=arguments, may_change=own)


GENERATORS = ((obstacle, 13), (written_before, 7), (same_twice, 4), (onto, 3), (applied, 8), (hostile_path, 6), (no_room, 2))
