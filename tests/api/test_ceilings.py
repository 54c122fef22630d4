"""Every number has a ceiling that its message states, and one of thousands of digits is refused at once, wherever it stands."""

from __future__ import annotations

from importlib import import_module

import pytest
from tests.draws import together

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field
from meshwright.api.request import read
from meshwright.cli.app import MODULES, VERBS
from meshwright.documents.python import parse_python
from meshwright.documents.toml import parse_toml
from meshwright.errors import InputError
from meshwright.readers.safe import parse_json
from meshwright.readers.safe_yaml import parse_yaml

DIGITS = "9" * 5001
HUGE = str(10**13)


def fields() -> dict[str, Field]:
    """Every option of every verb that takes a number, by verb and name."""
    found = {}
    for verb in VERBS:
        for field in import_module(f"meshwright.cli.{MODULES.get(verb, verb)}").FIELDS:
            try:
                value = field.parse("1")
            except InputError:
                continue
            if isinstance(value, (int, float)):
                found[f"{verb} {field.name}"] = field
    return found


NUMERIC = fields()


def faults_of(field: Field, word: str) -> list[str]:
    """What is said of a value of an option."""
    faults = Faults()
    read([field], {field.name: [word] if field.kind == "many" else word}, faults)
    return [str(message) for message in faults.messages]


@together("name", NUMERIC)
def test_every_number_has_a_ceiling_that_its_message_states(name):
    field = NUMERIC[name]
    (line,) = faults_of(field, "1e39")
    most = numbers.MOST.get(field.name)
    assert most is None or f"{most:,}" in line or "is more than" in line or "at most 1" in line or "below 1" in line
    assert any(word in line for word in ("more than", "at most", "below 1")), line
    if most is not None and field.parse("1") == 1:
        assert not [each for each in faults_of(field, str(most)) if "more than" in each]


@together("name", NUMERIC)
def test_thousands_of_digits_are_not_printed(name):
    for word in (DIGITS, f"-{DIGITS}", f"0.{DIGITS}", f"1e{DIGITS}"):
        (line,) = faults_of(NUMERIC[name], word)
        assert len(line) < 300


@pytest.mark.parametrize("number", [DIGITS, "0x" + "f" * 100_000, "0b" + "1" * 100_000, "0o" + "7" * 5000, "5_" * 3000 + "5"])
@pytest.mark.parametrize(
    "parse",
    [
        lambda number: parse_json(f'{{"a": 1,\n"b": {number}}}', where="f"),
        lambda number: parse_yaml(f"a: 1\nb: {number}\n", where="f"),
        lambda number: parse_toml(f"a = 1\nb = {number}\n", path="f"),
        lambda number: parse_python(f"cfg = C(a=1)\ncfg.model.num_layers = {number}\n", path="f"),
    ],
    ids=["json", "yaml", "toml", "python"],
)
def test_a_number_of_thousands_of_digits_is_refused_before_it_is_one(parse, number):
    with pytest.raises(InputError, match=r"^f: a number of [0-9,]+ characters \(line 2\); 100 are the limit$"):
        parse(number)


def test_numbers_of_base_60_are_refused_too():
    with pytest.raises(InputError, match="a number of 89,999 characters"):
        parse_yaml("a: " + ":".join(["59"] * 30_000))


@pytest.mark.parametrize("text", ["a: " + "9" * 100, "a: " + "f" * 500, "a: '" + "0123456789abcdef" * 20 + "'"])
def test_long_words_are_no_numbers(text):
    assert parse_yaml(text)
