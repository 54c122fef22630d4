from __future__ import annotations

import json

import pytest
from deepspeed_family import script
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 70), st.sampled_from([10**30, 0.5, 1e308, "auto", "", "cpu", "full", "FSDP", "2",
                                                                    [], [1, "x"], {}, {"a": 1}]),
    st.text("az0-\" {%", max_size=4),
)
WORDS = st.sampled_from(["1", "0", "-1", "2", "8", "x", "full", "block", "9" * 40, ""])


def documents(name):
    """Any values under the framework's own keys."""
    keys = sorted(key for key in framework(name).surface().keys if not key.startswith("-"))
    return st.dictionaries(st.sampled_from(keys), VALUES, max_size=12)


def nested(flat):
    found = {}
    for key, value in flat.items():
        *sections, last = key.split(".")
        place = found
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[last] = value
    return found


@pytest.mark.parametrize(("name", "suffix"), [("deepspeed", "json"), ("megatron-deepspeed", "json"), ("accelerate", "yaml")])
def test_no_value_makes_reading_or_checking_raise(name, suffix):
    there = framework(name)
    flags = sorted(key for key in there.surface().keys if key.startswith("--"))

    @examples(150)
    @given(documents(name), st.dictionaries(st.sampled_from(flags), WORDS, max_size=8), st.sampled_from([None, 1, 6, 8, 64]))
    def holds(flat, words, devices):
        files = [
            File(path=f"config.{suffix}", text=json.dumps(nested(flat))),
            script({key: f"'{word}'" if word else True for key, word in words.items()}, launcher="torchrun --nproc-per-node 8"),
        ]
        reading = there.read(files, given=Given(num_devices=devices))
        at = there.at(reading.version)
        for check in at.checks:
            for found in check.findings(reading, None):
                assert str(found.message)
        for message in reading.messages:
            assert str(message)
        assert (reading.layout is None) <= bool(reading.messages)
        for key in (*flat, *words, "nonsense", "zero_optimization.nonsense"):
            found = at.unknown_keys(key)
            assert found is None or found[1].format(key=key)

    holds()
