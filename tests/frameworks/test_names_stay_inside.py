"""What is true of one framework alone is a field of it: nobody outside its own package asks for its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import meshwright
from meshwright.frameworks import framework, frameworks

ROOT = Path(meshwright.__file__).parent
NAMES = frozenset(frameworks())
OWN = frozenset(f"frameworks/{name.replace('-', '_')}" for name in NAMES)
OTHERS = {
    "frameworks/__init__.py": "the list of built-in entry points",
    "perf/flops.py": "a convention of counting FLOPs that is called after Megatron",
    "report/headline.py": "the words of that convention",
    "documents/shell_launch.py": "programs that start processes: deepspeed and accelerate are commands, too",
    "engine/dry_run_subjects.py": "who builds the model of a dry run: a word of --builder",
    "api/verbs/dryrun.py": "the same word, said again where torch is not imported",
    "packing/modes/__init__.py": "whose packing a mode repeats: one word among those of programs that have no adapter",
    "api/verbs/pack.py": "the same words, of --mode",
    "report/pack.py": "what the same words mean",
}
"""Modules that hold such words among others, and which words those are."""


QUOTED = re.compile(f"""["'](?:{'|'.join(sorted(NAMES))})["']""")
"""What stands in a module that has such a word: the others are not parsed."""
LOOKS = ("startswith", "endswith", "get")


def literals(text: str) -> list[tuple[int, str]]:
    """Names of frameworks that a module compares with, looks up, or keeps in a table: line and name."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)) if QUOTED.search(text) else ():
        several: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            several = [node.left, *node.comparators]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            several = list(node.elts)
        elif isinstance(node, ast.Dict):
            several = list(node.keys)
        elif isinstance(node, ast.Subscript):
            several = [node.slice]
        elif isinstance(node, ast.MatchValue):
            several = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKS:
            several = list(node.args[:1])
        found += [
            (each.lineno, each.value) for each in several
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in NAMES
        ]
    return found


def test_no_module_outside_a_framework_knows_it_by_name():
    said = {}
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where.rpartition("/")[0] not in OWN and (found := literals(path.read_text(encoding="utf-8"))):
            said[where] = found
    assert {where: found for where, found in said.items() if where not in OTHERS} == {}
    assert OTHERS.keys() == said.keys(), "a reason for nothing"


def test_the_search_finds_what_it_is_for():
    text = (
        'X = {"picotron"}\nif f.name == "nanotron" or f.name in ("megatron",): pass\nY = {"deepspeed": 1}\n'
        'Z["bridge"].get("chatlearn")\n'
    )
    assert sorted(name for _, name in literals(text)) == ["bridge", "chatlearn", "deepspeed", "megatron", "nanotron", "picotron"]


def test_facts_are_those_that_the_names_had():
    inside = {name for name in NAMES if framework(name).facts.stages_inside_replicas}
    assert inside == {"picotron"}
    releases = [framework(name).at(each) for name in NAMES for each in framework(name).releases]
    on_mindspore = {each.name for each in releases if each.facts.ascend_allocator == "MS_ALLOC_CONF"}
    assert on_mindspore == {"mindformers", "mindspeed-core-ms"}
    assert {each.facts.ascend_allocator for each in releases if each.name in on_mindspore} == {"MS_ALLOC_CONF"}
    assert {name for name in NAMES if framework(name).facts.packing} == {"chatlearn"}
    assert {name for name in NAMES if framework(name).facts.guides} == {"megatron", "megatron-deepspeed"}
