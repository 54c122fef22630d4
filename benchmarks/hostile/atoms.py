"""Hostile words and numbers: what an attacker writes into a name, and what a slip of the keyboard into a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

CANARY = "canary"
"""A file of this name that appears anywhere was made by a name that ran. ``canary`` is also a command that makes it."""
COMMANDS = ("touch canary", "canary", ">canary")
SHELL = (
    "llama\n{c} #", "$({c})", "`{c}`", "'; {c}; '", '"; {c}; "', "'\"; {c} #", "\\'; {c} #", "x;{c}", "x|{c}", "x&{c}&", "\r{c}",
    "a\n\n{c}\n\n",
    "}}\n{c}\n{{", "${{x:-$({c})}}", "x\\\n{c}", "EOF\n{c}\n", "#SBATCH\n{c}", "<({c})", "a[$({c})]", "*/\n{c}", "\"\n{c}\n\"",
    "x\u2028{c}", "\t{c}",
)
CODE = (
    "{{ 7*7 }}", "{% for x in range(9) %}a{% endfor %}", "%s%n", "{0}", "{model!r}", "{reason}", "\n{c}: 1", "x\", \"canary\": \"1",
    "x'\n[canary]\na = 1 #",
    "!!python/object/apply:os.system ['touch canary']", "&a [*a]", "*canary", "]]></text><script>canary</script>",
    "</title><canary/>", "<canary>", "&canary;",
    '");canary()#', "'''\ncanary()\n'''", '"""\ncanary()\n"""', "=cmd|' /C canary'!A0", "+canary()", "-2+3+canary()",
    "@SUM(canary())", "null", "yes", "1e5", "- a", ": ", "#", "{", "[",
)
UNSEEN = (
    "\x1b[31mred", "\x1b]0;title\x07", "a\rb", "a\x08b", "\x7f", "\x9b31mred", "\u202egnp.exe", "a\u2066b\u2069", "\u200f",
    "\u061c", "\ud800", "a\udcffb", "\udce2\udc80",
    "a\x00b", "\x01", "\x0b\x0c", "a\nb", "a\tb", "\ufeffa", "\u200b", "\u2028", "e" + "\u0301" * 300,
)
ODD = (
    "a" * 300, "名" * 300, "a" * 5000, "-rf", "--help", "--force", "-", "--", "", " ", ".", "..", "../x", "~", "a b", "a  b ", "'",
    '"', "\\", "*", "?", "[a-z]*", "!h", "$HOME", "${HOME}",
    "%00", "CON", "名前", "Ωμέγα", "🦙", "İstanbul", "ß", "a/b", "a//b/", "./a", "a=b", "=", ",", ";", "@", "@1", "a@", "a@b@c",
    "megatron@", "megatron@9999", "0", "nan", "None", "True", "x" * 255,
)
NUMBERS = (
    "0", "-0", "-1", "-5", "00", "007", "1.5", "-0.5", "1e3", "1e-400", "1e400", "1e308", "-1e308", "nan", "NaN", "inf", "-inf",
    "Infinity", "0x10", "0b11", "1_000", "1,000", "1 000", " 5 ", "5\n",
    "\u0663", "\uff11\uff12", "\u00b2", "\u09ea", "\u2167", "\u00bd", "\u4e94", "+5", "--5", "5.", ".5", "1/0", "9" * 20, "9" * 400,
    "9" * 5001,
    "1e5000", "1e99999999999",
    "1e1000000000", "0." + "3" * 5001, "-" + "9" * 5001, "true", "null", "", " ",
    "1000000000", "999999999999", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "1e9", "1e15", "1e18", "1T", "1e15T", "9999999999P", "128k", "1M", "1kk",
    "100%", "0%", "101%", "-1%", "1e-5%", "1GB", "1e400GB", "-1GiB", "8,8", "1:2", "1-8", "[8]", "{8}", "1;2", "auto", "7", "13",
    "97", "100003", "1000003", "16777216", "1073741824",
)
HUGE = ("1000000", "100000000", "1000000000", "999999999999", "9223372036854775807", "1e9", "1e15", "9" * 20, "9" * 5001)
NOT_NUMBERS: tuple[object, ...] = (
    None,
    True,
    False,
    [],
    {},
    [1],
    {"a": 1},
    [[[]]],
    "",
    "1",
    "x",
    [None],
    {"value": None},
    {"value": -1, "unit": "GB"},
    "\u202e1",
)


def text(rng: random.Random) -> str:
    """A hostile word."""
    group = rng.choices((SHELL, CODE, UNSEEN, ODD), (5, 3, 4, 4))[0]
    word = rng.choice(group)
    return (
        word.replace("{c}", rng.choice(COMMANDS)).replace("{{", "{").replace("}}", "}")
        if group in (SHELL, CODE) and "{c}" in word
        else word
    )


def command(rng: random.Random) -> str:
    """A word that runs a command where it is taken for code."""
    return rng.choice(SHELL).replace("{c}", rng.choice(COMMANDS)).replace("{{", "{").replace("}}", "}")


def argument(rng: random.Random) -> str:
    """A hostile word as an argument: what a kernel can hand over (no NUL, bytes for lone surrogates)."""
    return as_argument(text(rng))


def as_argument(word: str) -> str:
    """A word as an argument can hold it."""
    kept = word.replace("\0", "\x01")
    return "".join("\udced\udca0\udc80" if "\ud800" <= one < "\udc80" else one for one in kept)


def as_name(word: str) -> str:
    """A word as the name of one file: no slash, not so long that the folder itself could not be made."""
    name = as_argument(word).replace("/", "_")
    while len(name.encode("utf-8", "surrogateescape")) > 200:
        name = name[:-1]
    return name if name not in ("", ".", "..", CANARY) else f"x{name}"


def number(rng: random.Random) -> str:
    """A hostile number as text; huge ones often."""
    return rng.choice(HUGE if rng.random() < 0.3 else NUMBERS)


def value(rng: random.Random) -> object:
    """A hostile value of a document: a number, a word, or another type."""
    kind = rng.randrange(8)
    if kind < 3:
        return as_json(number(rng))
    return text(rng) if kind < 5 else rng.choice(NOT_NUMBERS)


class Raw(str):
    """Text that a document holds as it is, without quotes."""

    __slots__ = ()


def as_json(word: str) -> object:
    """The number as a number where JSON or YAML would read one, else as text."""
    try:
        float(word)
    except ValueError:
        return word
    return Raw(word.strip()) if word.isascii() and "_" not in word else word
