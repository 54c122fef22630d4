"""How a run is launched, in words and as a case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.domain.launch import SETTINGS, launch_words, parse_launch
from meshwright.domain.launching import launched, settings_of
from meshwright.errors import InputError
from strategies import cases

EACH = {name: st.sampled_from(values) for name, values in SETTINGS.items()}
chosen = st.fixed_dictionaries({}, optional=EACH).filter(
    lambda found: not (found.get("graphs") == "step" and found.get("routing") == "natural")
)


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
    once = launched(case, settings)
    assert launched(once, settings) == once
    assert launched(case, {}) == case
    assert {name: value for name, value in settings_of(once).items() if name in settings}.items() <= settings.items()
