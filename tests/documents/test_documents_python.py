"""Python scripts as documents: what they set is read without running them, and changed where it stands."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.documents.python import parse_python
from meshwright.documents.source import UNKNOWN
from meshwright.errors import InputError

VALUES = st.one_of(
    st.integers(-(10**9), 10**9), st.booleans(), st.none(), st.text(max_size=8), st.lists(st.integers(0, 99), max_size=3)
)
KEYS = st.sampled_from(["model.tp", "model.pp", "model.inner.deep", "train.batch", "ddp.overlap", "ünï.cödé"])


def values(text):
    return {key: setting.value for key, setting in parse_python(text)[0].settings().items()}


def script(settings):
    lines = "\n".join(f"    cfg.{key} = {value!r}  # {key}" for key, value in settings.items())
    return f"import torch\n\n\ndef recipe():\n    cfg = base()\n{lines}\n    return cfg\n"


@given(st.dictionaries(KEYS, VALUES, min_size=1))
def test_assignments_are_read(settings):
    assert values(script(settings)) == settings


@given(st.dictionaries(KEYS, VALUES, min_size=2), st.data())
def test_a_change_touches_nothing_else(settings, data):
    key = data.draw(st.sampled_from(sorted(settings)))
    after = data.draw(VALUES.filter(lambda value: value is not None))
    text = script(settings)
    changed = parse_python(text)[0].changed({key: after})
    assert values(changed) == settings | {key: after}
    before_lines, after_lines = text.splitlines(), changed.splitlines()
    assert len(before_lines) == len(after_lines)
    assert all(old == new or f"cfg.{key} = " in old for old, new in zip(before_lines, after_lines, strict=True))
    ast.parse(changed)


@given(st.dictionaries(KEYS, VALUES, min_size=2), st.data())
def test_a_key_is_taken_out_and_added_again(settings, data):
    key = data.draw(st.sampled_from(sorted(settings)))
    without = parse_python(script(settings))[0].changed({key: None})
    assert values(without) == {name: value for name, value in settings.items() if name != key}
    assert values(parse_python(without)[0].changed({key: 7})) == settings | {key: 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cfg = f()\ncfg.a.b = 2 * 3 + 1\n", {"a.b": 7}),
        ("N = 8\ncfg = f()\ncfg.a.b = N * 1024\n", {"a.b": 8192}),
        ("cfg = f()\ncfg.a.b = g()\n", {"a.b": UNKNOWN}),
        ("cfg = f()\ncfg.a.b = torch.bfloat16\n", {"a.b": "torch.bfloat16"}),
        ("from enums import Kind, ONES\ncfg = f()\ncfg.a.b = Kind.one\ncfg.a.c = ONES.two\n", {"a.b": "Kind.one", "a.c": UNKNOWN}),
        ("class Kind:\n    one = 1\ncfg = f()\ncfg.a.b = Kind.one\n", {"a.b": UNKNOWN}),
        ("cfg = f(tp=2, pp=4)\n", {"tp": 2, "pp": 4}),
        ("cfg = Container(train=Train(batch=8), model=Model(tp=2))\n", {"train.batch": 8, "model.tp": 2}),
        ("t = Train(batch=8)\nt.steps = 5\ncfg = Container(train=t)\n", {"train.batch": 8, "train.steps": 5}),
        ("cfg = f()\nm = cfg.model\nm.tp = 4\n", {"model.tp": 4}),
        ("cfg = f()\ncfg.a.b = 1\nif x:\n    cfg.a.b = 2\n", {"a.b": UNKNOWN}),
        ('cfg = f()\nif __name__ == "__main__":\n    cfg.a.b = 2\n', {"a.b": 2}),
        ("cfg = f()\ncfg.a.b = 1\ncfg.a.b = 3\n", {"a.b": 3}),
        ("def f():\n    return Container(train=Train(batch=8))\n", {"train.batch": 8}),
        ("cfg = f()\ncfg.a.b = 10 ** 9\ncfg.a.c = 1 // 0\n", {"a.b": UNKNOWN, "a.c": UNKNOWN}),
    ],
)
def test_the_ways_in_which_scripts_configure(text, expected):
    assert values(text) == expected


def test_keyword_arguments_are_changed_in_place():
    text = "cfg = Container(\n    train=Train(batch=8),  # sequences\n    model=Model(tp=2, pp=1),\n)\n"
    document, _ = parse_python(text)
    assert document.changed({"train.batch": 16}) == text.replace("batch=8", "batch=16")
    assert document.changed({"model.tp": None}) == text.replace("tp=2, ", "")


def test_several_functions_are_remarked_and_the_first_is_read():
    body = "def {name}():\n    cfg = base()\n    cfg.model.tp = {tp}\n    return cfg\n\n\n"
    document, remarks = parse_python(body.format(name="one", tp=1) + body.format(name="two", tp=2))
    assert [remark.id for remark in remarks] == ["python.functions"]
    assert document.settings()["model.tp"].value == 1


def test_a_call_that_is_handed_the_configuration_is_remarked():
    _, remarks = parse_python("cfg = f()\ncfg.a.b = 1\nchange(cfg.a, 3)\n")
    assert [remark.id for remark in remarks] == ["python.handed"]


def test_nothing_is_run(tmp_path):
    victim = tmp_path / "touched"
    parse_python(f"open({str(victim)!r}, 'w')\ncfg = f()\ncfg.a.b = __import__('os').system('true')\n")
    assert not victim.exists()


@pytest.mark.parametrize(
    "text", ["def (", "\0", "x = " + "(" * 5000, "x = " + "-" * 100_000 + "1", "if a:\n" * 200, "\udcff = 1"[1:] + "é = ("]
)
def test_what_is_no_python_is_one_error(text):
    with pytest.raises(InputError):
        parse_python(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        parse_python(text)
    except InputError as error:
        assert error.messages[0].id.startswith("python.")


def test_a_line_that_is_shared_is_left_to_the_user():
    document, _ = parse_python("cfg = f()\ncfg.a.b = 1; cfg.a.c = 2\n")
    with pytest.raises(InputError, match="shares its line"):
        document.changed({"a.b": None})


def test_other_line_ends_keep_their_places():
    for end in ("\r\n", "\r", "\n"):
        text = f"cfg = f(){end}cfg.a.b = 'é'{end}cfg.a.c = 2{end}"
        assert parse_python(text)[0].changed({"a.c": 3}) == text.replace("2", "3")


def test_a_call_that_is_handed_an_object_gives_it_back():
    text = "cfg = base()\ncfg.model.tp = 2\ncfg.model = wrapped(cfg.model, extra=3)\ncfg = merged(config=cfg, file='x')\n"
    assert values(text) == {"model.tp": 2}
    assert [remark.id for remark in parse_python(text)[1]] == ["python.handed", "python.handed"]


@pytest.mark.parametrize("join", ["cfg.model = taught(cfg.model, other.model)", "cfg.model = taught(cfg.model, by=other)"])
def test_what_goes_into_another_object_by_a_call_keeps_its_name(join):
    text = f"cfg = base()\nother = base()\ncfg.model.tp = 2\nother.model.tp = 4\n{join}\n"
    assert values(text) == {"model.tp": 2, "other.model.tp": 4}


def test_a_part_of_an_object_stands_where_it_is_put():
    text = "cfg = base()\nother = base()\ncfg.model.tp = 2\nother.model.tp = 4\nother.x.y = 8\ncfg.model.inner = other.model"
    assert values(text) == {"model.tp": 2, "model.inner.tp": 4}
