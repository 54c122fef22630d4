"""What every format of logs keeps: it tells its own texts and no others, and takes any bytes without harm."""

from __future__ import annotations

import gzip
import math
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.readers.log_texts import BESIDE, EXAMPLES, MEGATRON, TORCHTITAN

from meshwright.domain.observed import RunLog
from meshwright.errors import InputError
from meshwright.readers.formats import BUILT_IN, formats, observe
from meshwright.readers.source import Source

FORMATS = {each.name: each for each in formats()}
TEXTS = [(name, text) for name, texts in EXAMPLES.items() for text in texts]
SIGNED = {"loss"}
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = pytest.mark.parametrize(("name", "text"), TEXTS, ids=[f"{name}-{index}" for index, (name, _) in enumerate(TEXTS)])


def sound(value, name=""):
    """Every figure is finite and, where it has a sign of no meaning, not negative."""
    if is_dataclass(value):
        for each in fields(value):
            sound(getattr(value, each.name), each.name)
    elif isinstance(value, dict):
        for key, each in value.items():
            sound(each, key)
    elif isinstance(value, tuple | list):
        for each in value:
            sound(each, name)
    elif isinstance(value, int | float):
        assert math.isfinite(value), name
        assert value >= 0 or name in SIGNED, (name, value)


def read(path, content, name):
    path.write_bytes(content)
    try:
        found = FORMATS[name].read(Source(path))
    except InputError:
        return ()
    sound(found)
    return found


def test_every_format_of_logs_has_a_text():
    names = {each.rsplit(".", 1)[1] for each in BUILT_IN if each.startswith("logs.")}
    assert len(names) == sum(name not in {"out_of_memory"} for name in EXAMPLES)


@texts
def test_a_format_tells_its_own_text_alone(name, text):
    told = {each.name for each in formats() if each.told(text.encode())}
    assert told - BESIDE.get(name, set()) == {name}


@texts
def test_what_is_read_is_sound_and_points_at_its_lines(name, text, tmp_path):
    found = read(tmp_path / "a.log", text.encode(), name)
    assert found
    lines = text.split("\n")
    for log in (each for each in found if isinstance(each, RunLog)):
        assert log.steps or log.signs
        for step in log.steps:
            assert any(character.isdigit() for character in lines[step.line - 1])
        for memory in log.memory:
            assert f"[Rank {memory.rank}]" in lines[memory.line - 1] or name in ("reference_log", "meshwright_step")
        for sign in log.signs:
            assert sign.text[:60] in lines[sign.place.line - 1]


@texts
@FEW
@given(data=st.data())
def test_a_text_may_end_anywhere(name, text, tmp_path, data):
    content = text.encode()
    read(tmp_path / "a.log", content[: data.draw(st.integers(0, len(content)))], name)


@texts
@FEW
@given(data=st.data())
def test_any_bytes_may_stand_in_a_text(name, text, tmp_path, data):
    content = text.encode()
    at = data.draw(st.integers(0, len(content)))
    known = st.sampled_from([b"\x00", b"9" * 400, b"-1", b"\xff\xfe", b"nan", b"1e999", b"\r"])
    junk = data.draw(st.one_of(st.binary(max_size=40), known))
    read(tmp_path / "a.log", content[:at] + junk + content[at + data.draw(st.integers(0, 9)):], name)


@pytest.mark.parametrize(("theirs", "hostile"), [
    ("2048", "-1"), ("2048", "9" * 30), ("size: 16", "size: " + "9" * 9), ("allocated: 21633.0", "allocated: -5"),
    ("15800.0", "-15800.0"),
    ("15800.0", "nan"), ("12500.00", "-1"), ("490.0", "1e999"), ("iteration       10", "iteration       " + "9" * 12),
])
def test_figures_that_cannot_be_are_none(theirs, hostile, tmp_path):
    assert read(tmp_path / "a.log", MEGATRON.replace(theirs, hostile).encode(), "megatron_log")


@pytest.mark.parametrize("text", [MEGATRON, TORCHTITAN])
def test_an_archive_says_the_same_and_a_broken_one_what_it_has(text, tmp_path):
    plain, packed, broken = tmp_path / "a.log", tmp_path / "b", tmp_path / "c"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    broken.write_bytes(packed.read_bytes()[:-12])
    whole, same, part = (observe([each]).observations[0] for each in (plain, packed, broken))
    assert whole.steps == same.steps
    assert part.notes != whole.notes
    assert {step.number for step in part.steps} <= {step.number for step in whole.steps}


def test_a_line_of_a_million_characters_hides_nothing(tmp_path):
    lines = MEGATRON.splitlines(keepends=True)
    path = tmp_path / "a.log"
    path.write_text("".join([*lines[:8], "x" * 1_000_000 + "\n", *lines[8:9], "\x00" * 100_000 + lines[13]]) + "".join(lines[14:]))
    log = observe([path]).observations[0]
    assert [step.number for step in log.steps] == [10, 20]
