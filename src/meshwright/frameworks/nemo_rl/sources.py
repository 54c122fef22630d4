"""NeMo-RL's files as one source: a recipe above those that its ``defaults`` name, and Hydra's words on a command line above all.

Source: NeMo-RL 7ea279ab nemo_rl/utils/config.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from posixpath import join, normpath
from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script, open_source
from meshwright.documents.source import Inherited
from meshwright.errors import fault
from meshwright.frameworks.nemo_rl.keys import ALGORITHMS, DTENSOR, MEGATRON
from meshwright.frameworks.nemo_rl.resolving import resolved
from meshwright.frameworks.omegaconf import refuse_twice
from meshwright.frameworks.verl.sources import Hydra, values_of_words

if TYPE_CHECKING:
    from meshwright.documents.source import Document, Setting, Source
    from meshwright.frameworks.base import File

DEFAULTS, OVERRIDE = "defaults", "_override_"


def open_files(files: Sequence[File]) -> Source:
    """The files as NeMo-RL merges them: bases, the recipes that name them, words of the command line.

    Nothing reads a back end that is switched off: what it says is no setting.
    """
    source = open_source(sorted(files, key=lambda file: is_script(file.path)))
    refuse_twice(source, "nemo-rl")
    documents = tuple(_documents(source.documents))
    remarks = tuple(remark for remark in source.remarks if remark.id != "source.twice")
    settings = resolved(merged(documents))
    for section in (MEGATRON, DTENSOR):
        switch = f"{section}.enabled"
        if switch in settings and settings[switch].value is False:
            settings = {key: setting for key, setting in settings.items() if key == switch or not key.startswith(f"{section}.")}
    return replace(source, documents=documents, settings=settings, remarks=remarks)


def merged(documents: Sequence[Document]) -> dict[str, Setting]:
    """What documents say in their order, with references as they stand there."""
    whole = _Merged()
    for document in documents:
        whole.merge(dict(values_of_words(document.settings())))
        if isinstance(document, Hydra):
            for key in (key for key, prefix in document.prefixes.items() if prefix == "~"):
                whole.take_out(key)
    return whole.settings


class _Merged:
    """Settings so far, with the keys that each section holds: a file may have as many keys as it likes."""

    def __init__(self) -> None:
        """Of no file yet."""
        self.settings: dict[str, Setting] = {}
        self._inside: dict[str, dict[str, None]] = {}

    def merge(self, more: Mapping[str, Setting]) -> None:
        """Settings of a later file into those of earlier ones: sections are merged, all else is replaced, and so is what says
        ``_override_``."""
        for key, setting in more.items():
            if key.endswith(f".{OVERRIDE}") and setting.value is True:
                self.take_out(key.rpartition(".")[0])
        for key, setting in more.items():
            if key == DEFAULTS or key.rpartition(".")[2] == OVERRIDE or (setting.value == {} and self._inside.get(key)):
                continue
            self.take_out(key)
            for section in _sections(key):
                self._drop(section)
                self._inside.setdefault(section, {})[key] = None
            self.settings[key] = setting

    def take_out(self, key: str) -> None:
        """Take a key out, with all below it."""
        for other in [key, *self._inside.get(key, ())]:
            self._drop(other)

    def _drop(self, key: str) -> None:
        if self.settings.pop(key, None) is not None:
            for section in _sections(key):
                del self._inside[section][key]


def _sections(key: str) -> Iterator[str]:
    """The sections that a key stands in, the outermost first."""
    parts = key.split(".")
    return (".".join(parts[:depth]) for depth in range(1, len(parts)))


def _documents(documents: Sequence[Document]) -> Iterator[Document]:
    """Documents in the order in which they are merged; edits of a base go to the recipe that inherits it."""
    trees = [each for each in documents if not is_script(each.path)]
    bases = {tree.path: [base for name in names_of_bases(tree) if (base := _named(name, tree, trees))] for tree in trees}
    _refuse_circle({path: [base.path for base in found] for path, found in bases.items()})
    inherited = {base.path for found in bases.values() for base in found}
    done: set[str] = set()

    def behind(tree: Document, heir: str) -> Iterator[Document]:
        if tree.path not in done:
            done.add(tree.path)
            for base in bases[tree.path]:
                yield from behind(base, heir or tree.path)
            yield Inherited(tree, heir) if heir else tree

    for tree in trees:
        if tree.path not in inherited:
            yield from behind(tree, "")
    yield from (Hydra(each, frozenset()) for each in documents if is_script(each.path))


def _refuse_circle(bases: Mapping[str, Sequence[str]]) -> None:
    """Refuse recipes that build on themselves; ``load_config_with_inheritance`` follows their names without end.

    Errors: ``InputError`` with the way round.
    """
    clear: set[str] = set()
    for start in bases:
        way: dict[str, list[str]] = {start: list(bases[start])}
        while way:
            path, left = next(reversed(way.items()))
            if not left:
                clear.add(path)
                del way[path]
                continue
            base = left.pop(0)
            if base in way:
                names = [*list(way)[list(way).index(base):], base]
                words = " -> ".join(PurePath(name).name for name in names)
                raise fault("nemo-rl.circle", "its defaults lead back to itself ({way}), and NeMo-RL follows them without end: "
                            "take one of them out", path=base, way=words)
            if base not in clear:
                way[base] = list(bases[base])


def names_of_bases(document: Document) -> tuple[str, ...]:
    """The recipes that a recipe builds on, as it names them."""
    setting = None if is_script(document.path) else document.settings().get(DEFAULTS)
    value = setting.value if setting is not None else None
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list) else ()


def _named(name: str, by: Document, trees: Sequence[Document]) -> Document | None:
    """The file that a recipe names, by its place beside it, or else by its own name where only one has it."""
    place = normpath(join(PurePath(by.path).parent.as_posix(), name))
    exact = [tree for tree in trees if normpath(PurePath(tree.path).as_posix()) == place]
    alike = [tree for tree in trees if PurePath(tree.path).name == PurePath(name).name]
    found = exact or alike
    return found[0] if len(found) == 1 and (found[0].path != by.path or exact) else None


def missing_bases(source: Source) -> tuple[str, ...]:
    """Recipes that the files build on and that are not among them."""
    trees = [each for each in source.documents if not is_script(each.path)]
    return tuple(dict.fromkeys(
        name for tree in trees for name in names_of_bases(tree) if _named(name, tree, trees) is None
    ))


def algorithm_of(source: Source) -> str:
    """What is run: ``grpo``, ``sft``, ``dpo`` ...; empty where the files do not say it."""
    stem = PurePath(source.program).stem
    by_program = next((name for name in ALGORITHMS if stem.startswith(f"run_{name}")), "")
    sections = {key.partition(".")[0] for key in source.settings}
    return by_program or next((name for name in ALGORITHMS if name in sections), "")


def enabled(source: Source) -> tuple[str, ...]:
    """Sections of the back ends that are switched on."""
    return tuple(section for section in (MEGATRON, DTENSOR) if source.value(f"{section}.enabled") is True)
