"""Words in the files that are written: one function for each language and place, and no other way in.

A name may hold anything that a reader lets pass, quotes and ``$(...)`` among it; these functions also make harmless what no
reader lets pass. ``Written`` is their answer: the templates of launch files take nothing else but numbers.

Sources: POSIX shell 2.2 (quoting), bash (``$'...'``), YAML 1.1 5.1 and 5.7, OmegaConf (escaped interpolations), CommonMark 0.31
with GitHub's tables, XML 1.0 2.2, OWASP (CSV injection).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache

from meshwright.errors import fault
from meshwright.text import hidden, quoted, visible

__all__ = [
    "Shell", "Written", "assignment", "command", "comment", "csv_cell", "export", "flags", "flow", "hydra", "interpolated",
    "markdown", "markdown_code", "prose", "python", "require_text", "slurm", "word", "xml", "yaml_scalar",
    "yaml_text",
]


class Written(str):
    """Text in the language of its file."""

    __slots__ = ()


class Shell(str):
    """What the shell is to expand: variables and substitutions of ours, as they stand between double quotes."""

    __slots__ = ()


def require_text(text: str, path: str = "") -> str:
    """The text of a file, of which every character can be written.

    Errors: ``InputError`` for zero bytes and lone surrogates, which no name of a reader has.
    """
    if wrong := re.search(r"[\x00\ud800-\udfff]", text):
        around = quoted(text[max(0, wrong.start() - 20) : wrong.start() + 20])
        raise fault("quoting.text", "{around} has {mark}, which no file can hold", path=path, around=around, mark=hidden(wrong[0]))
    return text


# --- Shell --------------------------------------------------------------------------------------------------------------


def word(value: object) -> Written:
    """A value as one word of bash; of a ``Shell`` what the shell makes of it.

    >>> print(word("a b"), word("it's"), word(8), word(Shell("$HERE/x")), word("a\\nb"))
    'a b' 'it'"'"'s' 8 "$HERE/x" $'a\\x0ab'
    """
    if isinstance(value, Written):
        return value
    if isinstance(value, Shell):
        return Written(f'"{value}"')
    text = str(value)
    return Written(f"$'{_bytes(require_text(text))}'" if hidden(text) else shlex.quote(text))


def _bytes(text: str) -> str:
    """Text within ``$'...'``: what nobody sees as bytes of UTF-8, which is the same in every locale."""

    def escaped(letter: str) -> str:
        if letter in "\\'":
            return f"\\{letter}"
        return "".join(f"\\x{byte:02x}" for byte in letter.encode()) if hidden(letter) else letter

    return "".join(map(escaped, text))


def command(*values: object) -> Written:
    """Words beside each other."""
    return Written(" ".join(map(word, values)))


def flags(settings: Mapping[str, object]) -> list[Written]:
    """A line for each flag with its values: True for a switch, a tuple for several words; what looks like a flag behind an equals
    sign, as no parser takes it otherwise.

    >>> str(flags({"--pattern": "-M*"})[0])
    "--pattern='-M*'"
    >>> [str(line) for line in flags({"--tp": 8, "--moe": True, "--lr": Shell("$LR"), "--modules": ("a", "b c")})]
    ['--tp 8', '--moe', '--lr "$LR"', "--modules a 'b c'"]
    """
    return [
        Written(f"{flag}={word(value)}") if _looks_like_a_flag(value)
        else command(flag, *(() if value is True else value if isinstance(value, tuple) else (value,)))
        for flag, value in settings.items()
    ]


def _looks_like_a_flag(value: object) -> bool:
    """Whether a parser would take a word for a flag: it begins with a hyphen and is no number."""
    return isinstance(value, str) and not isinstance(value, Shell) and bool(re.match(r"-(?![0-9.]+\Z)", value))


def assignment(name: str, default: str, what: str = "") -> Written:
    """A variable that the environment may give: with a default, or refused with what it is where it is not given.

    >>> print(assignment("LR", "1e-4"), assignment("HERE", Shell("$PWD")), assignment("X", 'a"}$(b)'), assignment("D", "", "data"))
    LR="${LR:-1e-4}" HERE="${HERE:-$PWD}" X=${X:-'a"}$(b)'} D="${D:?data}"
    """
    sign, text = ("?", what) if what and not default else ("-", default)
    if isinstance(text, Shell) or re.fullmatch(r"[\w@%+=:,;./ -]*", text):
        return Written(f'{name}="${{{name}:{sign}{text}}}"')
    return Written(f"{name}=${{{name}:{sign}{word(text)}}}")  # between double quotes a lone ' would open a string


def export(name: str, value: str | None) -> Written:
    """A variable for the command; None: it must not be set."""
    return Written(f"unset {name}" if value is None else f"export {name}={word(value)}")


def slurm(text: str) -> Written:
    """A value of an ``#SBATCH`` line, which sbatch reads with quotes of its own and ends at a line break."""
    return Written(shlex.quote(visible(text)))


# --- Comments ----------------------------------------------------------------------------------------------------------


def comment(text: object) -> Written:
    """Words behind a ``#`` of shell, YAML, TOML or Python: they cannot end the line.

    >>> print(comment("llama\\ntouch x"))
    llama\\ntouch x
    """
    return Written(visible(str(text)))


# --- Python, YAML ------------------------------------------------------------------------------------------------------


def python(value: object) -> Written:
    """A literal of Python."""
    return Written(repr(value))


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*")
_UNPRINTABLE = re.compile(r'["\\\x00-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]')
"""What a string of YAML between double quotes cannot hold as it is; ``hidden`` marks come on top."""


def yaml_scalar(value: object) -> Written:
    """A scalar of YAML; text is quoted where it would be read as something else.

    >>> print(yaml_scalar("llama3-8b"), yaml_scalar("no"), yaml_scalar(1e-5), yaml_scalar(None), yaml_scalar('a: "b"\\x00'))
    llama3-8b "no" 1.0e-05 null "a: \\"b\\"\\x00"
    """
    if isinstance(value, float):
        import yaml  # whoever writes no YAML does not import it

        return Written(yaml.safe_dump(value).partition("\n")[0])  # YAML reads 1e-05 as text
    if value is None:
        return Written("null")
    if isinstance(value, bool):
        return Written(str(value).lower())
    if isinstance(value, str):
        return Written(value if _reads_as_text(value) else f'"{visible(_UNPRINTABLE.sub(_yaml_escape, value))}"')
    return Written(value)


@lru_cache(maxsize=4096)
def _reads_as_text(word: str) -> bool:
    import yaml

    return _PLAIN.fullmatch(word) is not None and isinstance(yaml.safe_load(word), str)


def _yaml_escape(found: re.Match[str]) -> str:
    letter = found[0]
    return f"\\{letter}" if letter in '"\\' else visible(letter) if hidden(letter) else f"\\u{ord(letter):04x}"


def flow(value: object) -> Written:
    """A value on one line of YAML."""
    if isinstance(value, Mapping):
        return Written("{" + ", ".join(f"{yaml_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}")
    if isinstance(value, (list, tuple)):
        return Written("[" + ", ".join(map(flow, value)) + "]")
    return yaml_scalar(value)


def yaml_text(document: Mapping[str, object]) -> str:
    """YAML as people write it: sections as blocks, lists on one line, empty sections as ``{}``."""
    return "\n".join(_lines(document, 0)) + "\n"


def _lines(section: Mapping[str, object], depth: int) -> Iterator[str]:
    for key, value in section.items():
        head = f"{'  ' * depth}{yaml_scalar(key)}:"
        if isinstance(value, Mapping) and value:
            yield head
            yield from _lines(value, depth + 1)
        else:
            yield f"{head} {flow(value)}"


def interpolated(text: str) -> str:
    """Text for a file of OmegaConf, which reads ``${...}`` as another value.

    >>> print(interpolated("a$b"), interpolated("${oc.env:HOME}"))
    a$b \\${oc.env:HOME}
    """
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)


def hydra(value: object) -> str:
    """A setting of ours as Hydra reads it on a command line; in quotes where it would read more than a word.

    >>> hydra(None), hydra([2, "a"]), hydra("Et*2|L")
    ('null', '[2,a]', '"Et*2|L"')
    """
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(hydra, value))}]"
    text = str(value)
    if re.fullmatch(r"[\w.:/@%+-]*", text):
        return text
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


# --- Documents, pictures, tables -----------------------------------------------------------------------------------------


def markdown(text: object) -> Written:
    """Words in Markdown, in a cell of a table too: no emphasis, link, HTML or formula of their own.

    >>> print(markdown("llama3-8b"), markdown("a|b <i>"))
    llama3-8b a\\|b \\<i\\>
    """
    return Written(re.sub(r"([\\`*#\[\]<>&|~$]|\b_|_\b)", r"\\\1", visible(str(text))))


def markdown_code(text: object) -> Written:
    """A code span, in a cell of a table too.

    >>> print(markdown_code("bash x.sh"), markdown_code("a`b"))
    `bash x.sh` ``a`b``
    """
    shown = visible(str(text)).replace("|", r"\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    gap = " " if shown[:1] in {"`", " "} or shown[-1:] in {"`", " "} or not shown else ""
    return Written(f"{fence}{gap}{shown}{gap}{fence}")


def prose(text: object) -> Written:
    """Markdown of ours, in which only what nobody sees is made visible."""
    return Written(visible(str(text), keep="\n"))


_NO_XML = re.compile(r"[\ufffe\uffff]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def xml(text: str) -> Written:
    """Words in XML, SVG or HTML, between tags or in an attribute.

    >>> print(xml("a<b>\\x1b"))
    a&lt;b&gt;\\x1b
    """
    return Written(_NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", visible(text)).translate(_ENTITIES))


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_cell(text: str) -> str:
    """Text of somebody in a cell of CSV: no spreadsheet takes it for a formula. The writer of the file quotes it.

    >>> csv_cell("=cmd|' /C calc'!A0"), csv_cell("run-7")
    ("'=cmd|' /C calc'!A0", 'run-7')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
