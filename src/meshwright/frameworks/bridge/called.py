"""Which recipe a run starts from: the one that a command line asks for, or that a program calls, and what becomes of it there."""

from __future__ import annotations

import ast
import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.opening import PYTHON, is_script
from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.bridge.automatic import RELEASES
from meshwright.frameworks.bridge.recipe_values import layouts, names_with_values
from meshwright.frameworks.bridge.recipes import MODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.documents.source import Document, Source

ENTRIES = frozenset({"pretrain", "finetune", "distill"})
"""Bridge's functions that train by a configuration, and change nothing of it that is read here."""
BENCHMARKS = frozenset({
    "deepseek_v3_pretrain_1024gpu_h100_bf16_config", "glm52_sft_192gpu_gb200_bf16_config", "glm52_sft_416gpu_h100_bf16_config",
    "gpt_oss_120b_pretrain_64gpu_h100_bf16_config", "llama3_70b_peft_8gpu_h100_bf16_config",
    "llama3_70b_sft_32gpu_h100_bf16_config", "nemotron_3_nano_pretrain_8gpu_gb200_bf16_config",
    "qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config", "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config",
})
"""Names under which ``run_recipe`` of main finds a recipe of ``perf_recipes``, whose values are not here, before another of
``recipes``. Source: Megatron-Bridge 067f987 recipe_metadata.py."""
_RECIPE = re.compile(r"\w+_(?:pretrain|sft|peft|finetune)_(?:\w+_)?config")
_PACKAGE = "megatron.bridge"


class Call(Struct, frozen=True, kw_only=True):
    """A recipe that a run starts from."""

    recipe: str
    by_words: bool = False
    """Whether a command line of ``run_recipe`` asks for it."""
    replaced: frozenset[str] = frozenset()
    """Sections of its configuration that the program sets anew as a whole: ``model``, ``comm_overlap`` ..."""
    setter: str = ""
    """Bridge's function that the program has set the pipeline layout by."""
    layout: object = None
    """The layout that it is handed; None: it is to make one by the stages."""
    line: int = 0
    """Where it is called."""


def call_of(source: Source, release: str) -> Call | None:
    """The recipe that a run starts from, by the words of its command line, else by its program; None where neither is known."""
    recipe, model = source.value("--recipe"), source.value("--model")
    if isinstance(recipe, str):
        return Call(recipe=recipe, by_words=True)
    if release == "main" and isinstance(model, str):
        mode = MODES.get(str(source.value("--mode", "pretrain")), "peft")
        return Call(recipe=f"{model}_{mode}_config", by_words=True)
    return next((found for tree in trees(source.documents) if (found := _called(tree, release)) is not None), None)


def trees(documents: Sequence[Document]) -> Iterator[ast.Module]:
    """The Python programs among files, which were parsed before."""
    return (_tree(each.text) for each in documents if not is_script(each.path) and each.path.lower().endswith(tuple(PYTHON)))


@lru_cache(maxsize=8)
def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def harmless_lines(tree: ast.Module) -> frozenset[int]:
    """Lines where a program hands its configuration to functions of Bridge that are known here."""
    names = _imported(tree, _PACKAGE)
    known = {name for release in RELEASES for name in layouts(release)} | ENTRIES
    return frozenset(call.lineno for call in _calls(tree) if names.get(_name(call.func)) in known)


def _called(tree: ast.Module, release: str) -> Call | None:
    """The first recipe that a program calls and does not make a teacher of; one whose values are known before any other."""
    names = _imported(tree)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    variables = {
        id(node.value): node.targets[0].id for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
    }
    found: list[tuple[bool, int, str, str]] = []
    for call in _calls(tree):
        own = _name(call.func)
        name, variable = names.get(own, own), variables.get(id(call), "")
        known = name in names_with_values(release)
        if own not in defined and (known or _RECIPE.fullmatch(name)) and "teacher" not in variable.lower():
            found.append((not known, call.lineno, name, variable))
    if not found:
        return None
    _, _, name, variable = min(found)
    setter, layout, line = _setter(tree, names, variable, release)
    return Call(recipe=name, replaced=frozenset(_replaced(tree, variable)), setter=setter, layout=layout, line=line)


def _replaced(tree: ast.Module, variable: str) -> Iterator[str]:
    """Sections that are set to something else than what the recipe made: ``cfg.model = Provider()``, no wrap of ``cfg.model``."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):
            continue
        target, used = node.targets[0], {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        owned = isinstance(target.value, ast.Name) and target.value.id == variable
        if owned and variable not in used and not isinstance(node.value, ast.Constant):
            yield target.attr


def _setter(tree: ast.Module, names: Mapping[str, str], variable: str, release: str) -> tuple[str, object, int]:
    """The last call that sets the pipeline layout of the recipe's model: its function, the layout that it is handed, its line."""
    found: tuple[str, object, int] = ("", None, 0)
    for call in _calls(tree):
        name = names.get(_name(call.func), _name(call.func))
        if name not in layouts(release) or call.lineno < found[2]:
            continue
        words = {word.arg: word.value for word in call.keywords}
        model = call.args[0] if call.args else words.pop("model_cfg", None)
        given = [*call.args[1:], *(value for key, value in words.items() if key != "model_cfg")]
        if model is not None and any(isinstance(each, ast.Name) and each.id == variable for each in ast.walk(model)):
            found = (name, _literal(given) if given else None, call.lineno)
    return found


def _literal(given: Sequence[ast.expr]) -> object:
    try:
        return ast.literal_eval(given[0]) if len(given) == 1 else UNKNOWN
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(node: ast.expr) -> str:
    """The last name of ``a.b.c``."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _imported(tree: ast.Module, package: str = "") -> Mapping[str, str]:
    """Names that a program imports from modules of a package -> what they are called there."""
    return {each.asname or each.name: each.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
            if (node.module or "").startswith(package) for each in node.names}
