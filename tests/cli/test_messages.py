"""Every message of the program is an identifier and a template whose values are given."""

from __future__ import annotations

import ast
import re
import string
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path

import meshwright
from meshwright.errors import Message
from meshwright.text import NOUNS

SOURCE = Path(meshwright.__file__).parent
MAKERS = {"fault": 0, "Message": 0, "add": 0, "check": 1}
"""Name of a call that makes a message -> the place of its identifier."""
MADE = re.compile(rf"\b(?:{'|'.join(MAKERS)})\s*\(")
"""What stands in a file that makes one: the others are not parsed."""


@cache
def calls() -> list[tuple[str, str, str, set[str] | None]]:
    """Place, identifier, template, and the names of the values (None where they are not written in the call)."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if MADE.search(text) else ():
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            place = MAKERS.get(name)
            texts = [] if place is None else [getattr(each, "value", None) for each in node.args[place : place + 2]]
            if len(texts) < 2 or not all(isinstance(text, str) for text in texts) or "." not in texts[0]:
                continue
            keywords = {keyword.arg for keyword in node.keywords}
            if name == "Message":
                values = node.args[2] if len(node.args) > 2 else None
                written = isinstance(values, ast.Dict) and all(isinstance(key, ast.Constant) for key in values.keys)
                names = {key.value for key in values.keys} if written else None
            else:
                names = None if None in keywords else keywords - {"path"}
            found.append((f"{path.relative_to(SOURCE)}:{node.lineno}", texts[0], texts[1], names))
    return found


def test_messages_are_found():
    assert len(calls()) > 60
    assert {"label.world", "option.choice", "pin.knob", "file.exists", "request.key"} <= {call[1] for call in calls()}


def test_a_template_formats_with_its_values():
    for place, _, template, names in calls():
        fields = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
        assert all(field.isidentifier() for field in fields), place
        assert names is None or fields <= names, place
        printed = template.format(**dict.fromkeys(fields, 3))
        assert printed, place
        assert "\n" not in printed, place


def test_an_identifier_means_one_thing_in_a_file():
    templates = defaultdict(set)
    for place, identifier, template, _ in calls():
        if place.startswith(("cli/", "report/", "domain/label")):
            templates[identifier].add(template)
    assert not {identifier: texts for identifier, texts in templates.items() if len(texts) > 1}


OWN_WORDS = {
    "accelerate.reshard", "chatlearn.vision-packing", "chatlearn.text-bool", "environment.unknown", "megatron.missing",
    "megatron.selective-count", "megatron.experts", "megatron-deepspeed.switch",
}
"""What a framework itself says, quoted."""
OF_PYTHON = re.compile(r"\b(str|int|float|bool|dict|tuple|NoneType|None|True|False|mappings?|scalars?|[A-Z]\w+Error)\b")


def test_no_template_speaks_python():
    assert not [call for call in calls() if call[1] not in OWN_WORDS and OF_PYTHON.search(call[2])]


COUNTING = re.compile(r"\{[a-z_]+(?::,)?\} ((?:[a-z-]+ )?)([a-z-]+s)\b(?![/_=-])")
_OTHERS = (
    "accounts acts allocates allows always as becomes begins belongs comes computes conflicts converts counts cuts decides "
    "declares depends differs divides does ends exceeds exists files fills fits gives halves hands has holds is its joins "
    "keeps knows lacks lays leaves less lets levels lies lists makes mbs means names needs normalises ones others patches "
    "places programs reaches reads recomputes registers reports requires reuses runs says sets shards shares spends splits "
    "stands starts stays takes this times trains transfers turns variables vs was ways works writes"
)
NO_NOUNS = frozenset(_OTHERS.split())
"""What ends as a plural behind a value and is none: verbs, and words that a quoted framework has."""


def test_the_noun_behind_a_count_is_one_where_the_count_is():
    """"1 layers": of every template, with all its counts 1."""
    wrong, unknown = [], []
    for place, id_, template, _ in calls():
        fields = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
        with suppress(ValueError, TypeError):
            said = Message(id_, template, dict.fromkeys(fields, 1)).words
            wrong += [f"{place}: {said}" for found in COUNTED.finditer(said) if found[2] in NOUNS]
        unknown += [f"{place}: {found[2]}" for found in COUNTING.finditer(template)
                    if not {found[2], found[1].strip()} & (NOUNS | NO_NOUNS)]
    assert not wrong, "\n".join(wrong)
    assert not unknown, f"nouns of meshwright.text, or words of NO_NOUNS? {unknown}"


COUNTED = re.compile(r"(?:^|[ (])(1) ((?:[a-z-]+))\b(?!-)")


def test_the_words_behind_one_keep_their_grammar():
    def said(template, **values):
        return Message("a.b", template, values).words

    assert said("{stages} stages are more than the {layers} layers", stages=1, layers=1) == "1 stage is more than the 1 layer"
    assert said("{packs:,} packs of {cap:,} tokens do not", packs=1, cap=1) == "1 pack of 1 token do not"
    assert said("cut {tp} times, in {count} batches", tp=1, count=1) == "cut once, in 1 batch"
    assert said("rank {rank} comes last, {name}={value} turns off", rank=1, name="A", value=1) == "rank 1 comes last, A=1 turns off"
    assert said("{ratio:.1f} times the {dp} data-parallel ranks", ratio=1.0, dp=1) == "1.0 times the 1 data-parallel rank"
    assert said("{stages} stages are {{more}}", stages=2) == "2 stages are {more}"
