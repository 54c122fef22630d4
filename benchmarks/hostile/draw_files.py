"""Hostile files: what is no text, has no end, is no file, or is a table of a million columns, wherever a file is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.hostile import atoms
from benchmarks.hostile import documents as d
from benchmarks.hostile.case import Case, with_option, write
from benchmarks.hostile.commands import CASE, LAYOUT, Command, command, held, runs, taken

if TYPE_CHECKING:
    import random

    from benchmarks.hostile.world import World

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 9)}]\n" for each in range(1, 30)
)
MERGES = "m0: &m0 {a: 1}\n" + "".join(f"m{each}: &m{each} {{<<: [{', '.join([f'*m{each - 1}'] * 9)}]}}\n" for each in range(1, 12))
FILES = (
    "rm -rf {f}; ln -s {f} {f}", "rm -f {f}; mkfifo {f}", "rm -f {f}; mkdir {f}", "chmod 000 {f}", ": > {f}", "rm -f {f}",
    "rm -f {f}; ln -s nowhere {f}",
    "seq 2000 | gzip -n > {f}", "printf 'a\\0b: \\0\\n' > {f}", "sed -i '1s/^/\\xef\\xbb\\xbf/' {f}",
    "iconv -t UTF-16 {f} > .t; mv .t {f}", "printf '\\351\\377\\n' >> {f}",
    "sed -i 's/$/\\r/' {f}", "tr '\\n' '\\r' < {f} > .t; mv .t {f}", "printf '[%.0s' $(seq 100000) > {f}",
    "printf '{{\"a\":%.0s' $(seq 20000) > {f}",
    "printf -- '- %.0s' $(seq 20000) > {f}", "printf '$((%.0s' $(seq 20000) > {f}", "truncate -s 200M {f}",
    "yes 'a: 1' | head -c 200M > {f}",
    "head -c 30M /dev/zero | tr '\\0' 9 > {f}", "head -c 30M /dev/zero | tr '\\0' ' ' > {f}", "seq -f 'k%.0f: 1' 300000 > {f}",
    "seq 1000000 > {f}",
    "rm -f {f}; mknod {f} c 1 5 || mkfifo {f}", "rm -f {f}; mknod {f} c 1 3 || mkfifo {f}", "rm -f {f}; ln -s /proc/self/mem {f}",
    "head -c 100 {f} > .t; mv .t {f}",
    "cat {f} {f} > .t; mv .t {f}", "printf '\\n\\0\\n' >> {f}", "sed -i '1s/^/\\t/' {f}", "printf 'null' > {f}",
    "printf '[]' > {f}", "printf '{{}}' > {f}", "printf '\"x\"' > {f}",
    "printf '9%.0s' $(seq 5001) > {f}", "printf '{{\"a\": 1, \"a\": 2}}' > {f}", "printf -- '---\\na: 1\\n---\\nb: 2\\n' > {f}",
    "printf '!!python/object/apply:os.system [touch canary]' > {f}",
    "printf 'a: !include /etc/passwd\\n? [b]\\n: c\\n? {{d: e}}\\n: f\\n' > {f}", "printf '<<: *x\\n' > {f}",
    "printf '%%YAML 9.9\\n---\\na: 2001-99-99\\n' > {f}",
    "printf '#!/bin/bash\\neval \"$(touch canary)\"\\n. <(echo touch canary)\\nsource $0\\nexec bash $0\\n' > {f}",
    "printf 'while :; do :; done\\n' > {f}",
    "printf 'a() {{ a | a & }}; a\\n' > {f}", "printf 'cat <<EOF\\n' > {f}",
    "printf 'X=${{X:=$(touch canary)}}\\ntorchrun $X `touch canary`\\n' > {f}",
)
"""Lines that spoil a well-formed file."""
SLOW_ROWS = 5000


def special_file(rng: random.Random, world: World) -> Case:
    """One of the above in place of a file that a well-formed command reads."""
    base = _reading(rng, world)
    lines = tuple(line.format(f=rng.choice(base.inputs)) for line in rng.sample(FILES, 1))
    if rng.random() < 0.1:
        lines = (write(base.inputs[0], rng.choice((BOMB, MERGES))),)
    arguments = (*base.arguments, "--apply") if base.output == "--apply" and rng.random() < 0.5 else base.arguments
    return Case(
        verb=base.arguments[0],
        kind="special file",
        setup=(*base.setup, *lines),
        arguments=arguments,
        may_change=base.inputs if "--apply" in arguments else (),
    )


def file_option(rng: random.Random, world: World) -> Case:
    """One of the above behind any option that takes a file, of any verb."""
    verb = world.verb(rng)
    base = command(rng, verb)
    option = world.option(rng, verb, "file")
    if option is None:
        return special_file(rng, world)
    content = rng.choice(
        (
            d.dumped(d.REQUEST),
            d.dumped(d.CLUSTER),
            d.LENGTHS,
            runs(),
            d.dumped(d.HF_CONFIG),
            d.dumped(d.MEASURED),
            "CUDA out of memory",
        )
    )
    name = rng.choice(
        ("f", "f.yaml", "f.json", "f.csv", "f.sh", "f.toml", "f.log", "f.jsonl", "-f", "f\nf", "\u202ef", "a b", "$(touch canary)")
    )
    word = f"./{name}" if name.startswith("-") else name
    line = rng.choice((*FILES, ":", ":")).format(f="FILE")
    shown = write("FILE", content), line, f"mv FILE {write(word, '').rpartition(' > ')[2]} 2>/dev/null"
    given = rng.choice((word, word, word, f"{word}/", f"{word}/x", f"./{word}", f"{word}::{word}"))
    return Case(
        verb=verb, kind="special file", setup=(*base.setup, *shown), arguments=with_option(base.arguments, option.name, given)
    )


def many_files(rng: random.Random, world: World) -> Case:
    """Many files at once, one twice, of another framework, or mixed with what is no file."""
    verb = rng.choice(("check", "import", "fix"))
    base = taken(rng, verb)
    at = 1 + len(base.inputs)
    extra = rng.choice(
        (
            base.inputs,
            base.inputs * 100,
            ("nowhere",),
            ("plan.yaml", "README.md"),
            (".",),
            ("/proc/self/environ",),
            ("", "-"),
            tuple(f"n{each}" for each in range(300)),
        )
    )
    return Case(verb=verb, kind="special file", setup=base.setup, arguments=(*base.arguments[:at], *extra, *base.arguments[at:]))


def measured_runs(rng: random.Random, world: World) -> Case:
    """Tables of runs: many rows, one id for all, a million columns, formulas, open quotes, cells as large as a file."""
    setup, slow, verb = [], False, rng.choice(("validate", "validate", "calibrate"))
    head, one = d.table([]).strip(), d.table([d.row(1)]).splitlines()[1]
    match rng.randrange(14):
        case 0:
            setup, slow = [_repeat(head, one, rng.choice((20000, 20000, 150000)))], True
        case 1:
            rows = rng.choice((3000, 30000))
            slow = rows > SLOW_ROWS
            setup.append(f"{{ echo '{head}'; seq {rows} | sed 's/^/b-/; s|$|{one.removeprefix('a-1')}|'; }} > runs.csv")
        case 2:
            setup.append("{ seq -s , 1000000; seq -s , 1000000; } > runs.csv")
        case 3:
            setup.append(
                write(
                    "runs.csv",
                    d.table(
                        [d.row(each, id=cell) for each, cell in enumerate(("=1+1", "+cmd|' /C calc'!A0", "@SUM(1)", "-2", "\t=1"))]
                    ),
                )
            )
        case 4:
            setup.append(f"{{ echo '{head}'; printf '\"'; seq 300000; }} > runs.csv")
        case 5:
            setup.append(f"{{ echo '{head}'; printf '{one},'; head -c 20M /dev/zero | tr '\\0' x; echo; }} > runs.csv")
        case 6:
            setup.append(
                write(
                    "runs.csv",
                    d.table(
                        [d.row(each) for each in range(5)],
                        [*d.COLUMNS[:-1], rng.choice((d.COLUMNS[0], "", "\n", "x" * 10000, "=a"))],
                    ),
                )
            )
        case 7:
            setup.append(write("runs.csv", d.table([d.row(each)[: rng.randrange(40)] for each in range(9)])))
        case 8:
            setup.append(write("runs.csv", d.table([[*d.row(each), *["x"] * 500] for each in range(9)])))
        case 9:
            setup.append(f"{{ echo '{head}'; yes '' | head -n 1000000; }} > runs.csv")
        case _:
            lines = [d.row(each) for each in range(6)]
            for _ in range(rng.choice((1, 2, 6, 30))):
                rng.choice(lines)[rng.randrange(len(d.COLUMNS))] = atoms.number(rng) if rng.random() < 0.6 else atoms.text(rng)
            setup.append(write("runs.csv", d.table(lines)))
    arguments = ("validate", "runs.csv") if verb == "validate" else ("calibrate", "--runs", "runs.csv")
    if rng.random() < 0.4:
        arguments = (*arguments, *(("--rows", "rows.csv") if verb == "validate" else ("--out", "c.json")))
    if rng.random() < 0.2:
        arguments = (*arguments, "--json")
    return Case(verb=verb, kind="table of runs", setup=tuple(setup), arguments=arguments, slow=slow and verb == "validate")


def lengths(rng: random.Random, world: World) -> Case:
    """Files of document lengths with lines that are none."""
    line = rng.choice((
        write("lengths", "".join(f"{atoms.number(rng)}\n" for _ in range(rng.choice((1, 3, 40))))),
            "yes 8 | head -n 3000000 > lengths", "yes 1000000000000 | head -n 20 > lengths",
        "seq 400000 | sed 's/.*/{\"length\": x}/' > lengths", "yes '{\"length\": 5}' | head -n 300000 > lengths", write("lengths",
        "length,x\n5,=1\n"), "printf '9%.0s' $(seq 100000) > lengths",
    ))
    verb = rng.choice(("estimate", "plan"))
    return Case(
        verb=verb,
        kind="special file",
        setup=(line,),
        arguments=(verb, *CASE, *(LAYOUT if verb == "estimate" else ()), "--lengths", "lengths"),
    )


def _repeat(head: str, line: str, times: int) -> str:
    """The line that writes a table of one row, so many times."""
    return f"{{ echo '{head}'; yes '{line}' | head -n {times}; }} > runs.csv"


def _reading(rng: random.Random, world: World) -> Command:
    """A well-formed command that reads a file."""
    if rng.random() < 0.3:
        name = rng.choice(("config.json", "model.yaml", "cluster.yaml", "request.yaml"))
        batch = ("--global-batch", "32", "--sequence", "2048", *LAYOUT)
        words = {"cluster.yaml": ("llama3-8b", "--cluster", name, *batch), "request.yaml": ("--request", name)}
        return Command(
            (held(name),), ("estimate", *words.get(name, (name, "--device", "h100-sxm", "--nodes", "1", *batch))), (name,)
        )
    while True:
        base = command(rng, world.verb(rng))
        if base.inputs:
            return base


GENERATORS = ((special_file, 13), (file_option, 9), (many_files, 3), (measured_runs, 9), (lengths, 2))
