"""Every message of the program is an identifier and a template whose values are given."""

from __future__ import annotations

import ast
import re
import string
from collections import defaultdict
from functools import cache
from pathlib import Path

import meshwright

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
