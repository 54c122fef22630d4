"""How a run is launched, in words and as a case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.domain.launch import COUNTS, OFFLOAD_MODULES, SETTINGS, launch_words, parse_launch
from meshwright.domain.launching import launched, settings_of
from meshwright.errors import InputError
from strategies import cases

EACH = {name: st.sampled_from(values) for name, values in SETTINGS.items()}
EACH |= {name: st.integers(0, most).map(str) for name, most in COUNTS.items()}
EACH["offload_modules"] = st.sets(st.sampled_from(OFFLOAD_MODULES)).map(
    lambda named: "+".join(each for each in OFFLOAD_MODULES if each in named) or "none")


def _agrees(found):
    modules = found.get("offload_modules", "none").split("+")
    return not (
        (found.get("graphs") == "step" and found.get("routing") == "natural")
        or ("attn_proj" in modules and "core_attn" not in modules)
        or ("image_tokens" in found and found.get("vision", "none") == "none")
        or (modules != ["none"] and found.get("offload_layers", "0") != "0")
    )


chosen = st.fixed_dictionaries({}, optional=EACH).filter(_agrees)


@examples(40)
@given(chosen)
def test_words_come_back_as_they_were(settings):
    assert parse_launch(launch_words(settings)) == settings
    assert parse_launch(launch_words(settings).replace(" ", ",").upper()) == settings


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("graph=none", "did you mean graphs"), ("graphs=all", "graphs is one of"),
        ("host=bound host=plain", "both bound and plain"),
        ("graphs=step routing=natural", "contradict each other"), ("graphs", "graphs is one of"), ("=on", "unknown setting"),
        ("offload_layers=-1", "whole number"), ("offload_layers=1.5", "whole number"), ("offload_layers=\u0662", "whole number"),
        ("image_tokens=5", "image_tokens=5 needs a tower"), ("vision=none image_tokens=5", "needs a tower"),
        ("vision=on", "vision is one of"),
        ("slice_tokens=1000000001", "whole number"), ("offload_modules=fc1", "fc1: offload_modules is one of"),
        ("offload_modules=expert_fc1 offload_layers=2", "contradict each other"), ("offload_modules=attn_proj", "add core_attn"),
        ("checkpoints=cpu", "checkpoints is one of"),
    ],
)
def test_what_contradicts_itself_or_is_not_known_is_refused_in_one_line(words, why):
    with pytest.raises(InputError, match=why) as refused:
        parse_launch(words)
    assert len(refused.value.messages) == 1
    assert "\n" not in str(refused.value)


def test_a_name_alone_is_on():
    assert parse_launch("deterministic") == {"deterministic": "on"}


@examples(30)
@given(cases(), chosen)
def test_setting_again_what_was_set_changes_nothing(case, settings):
    settings = {name: value for name, value in settings.items() if name not in {"vision", "image_tokens"}}  # of models with a tower
    once = launched(case, settings)
    assert launched(once, settings) == once
    assert launched(case, {}) == case
    assert {name: value for name, value in settings_of(once).items() if name in settings}.items() <= settings.items()
