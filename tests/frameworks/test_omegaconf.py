"""What OmegaConf makes of files: references are filled in once each, in bounded time, whatever they lead to."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.documents.source import UNKNOWN, Setting
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.chatlearn.sources import resolve
from meshwright.frameworks.megatron.stages import unrolled
from meshwright.frameworks.nemo_rl.resolving import resolved
from meshwright.frameworks.nemo_rl.sources import merged

SOON_S = 5.0
"""Of the processor: the machine is shared."""


def settings_of(values):
    return {key: Setting(key=key, value=value, file="a.yaml") for key, value in values.items()}


@pytest.mark.parametrize("fill", [resolved, lambda settings: resolve(settings)[0]], ids=["nemo-rl", "chatlearn"])
@pytest.mark.parametrize("width", [2, 5])
def test_references_on_many_levels_are_no_matter_of_hours_or_gigabytes(fill, width):
    """Each level doubled the ways and the text: thirty of them did not end."""
    levels = 60
    values = {f"g{level}": f"${{g{level + 1}}}" * width for level in range(levels)} | {f"g{levels}": "x" * 10}
    began = time.process_time()
    found = fill(settings_of(values))
    assert time.process_time() - began < SOON_S
    assert found["g0"].value is UNKNOWN
    assert found[f"g{levels - 1}"].value == "x" * 10 * width


@examples(60)
@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=2), min_size=1))
def test_references_come_to_what_they_are_written_out_to(graph):
    """Written out by hand, one after the other; in a circle, or out of the settings, to nothing that is known."""
    def by_hand(key, above):
        if key in above or key not in graph:
            return None
        parts = [by_hand(each, (*above, key)) for each in graph[key]]
        return None if None in parts else f"<{key}" + "".join(parts) + ">"

    values = {key: f"<{key}" + "".join(f"${{{each}}}" for each in inside) + ">" for key, inside in graph.items()}
    found = resolved(settings_of(values))
    for key in graph:
        assert found[key].value == (by_hand(key, ()) or UNKNOWN)


class Told:
    """A document of given settings."""

    path = "a.yaml"

    def __init__(self, values):
        self.values = values

    def settings(self):
        return settings_of(self.values)


def test_a_recipe_of_many_keys_is_merged_at_once():
    """Each key looked at all others: thirty thousand took minutes."""
    began = time.process_time()
    found = merged([Told({f"section.key{number}": number for number in range(30_000)}), Told({"section.key7.below": 1})])
    assert time.process_time() - began < SOON_S
    assert len(found) == 30_000
    assert "section.key7" not in found


KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)
VALUES = st.sampled_from([1, None, {}])


@examples(60)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=3))
def test_files_are_merged_key_by_key(documents):
    """The last word counts: what stands above or below a key that comes later is gone, but for an empty section."""
    wanted = {}
    for document in documents:
        for key, value in document.items():
            below = [other for other in wanted if other.startswith(f"{key}.")]
            if value == {} and below:
                continue
            above = [other for other in wanted if key.startswith(f"{other}.")]
            for other in {*below, *above, key} & set(wanted):
                del wanted[other]
            wanted[key] = value
    assert {key: setting.value for key, setting in merged(list(map(Told, documents))).items()} == wanted


@pytest.mark.parametrize("name", ["nemo-rl-megatron", "nemo-rl-dtensor", "verl-megatron", "verl-fsdp"])
def test_a_key_twice_is_refused_as_omegaconf_does(name):
    with pytest.raises(InputError) as caught:
        framework(name).read([File(path="a.yaml", text="policy: {a: 1}\nactor_rollout_ref: {b: 1}\npolicy: {a: 2}\n")])
    message, = caught.value.messages
    assert "found duplicate key policy (lines 1 and 3)" in str(message)


@pytest.mark.parametrize("text", ["Et|(t*6|)*9999L", "(t*6|)*999999", "((((t*99)*99)*99)*99)", "t*9999" * 9999])
def test_a_layout_string_is_written_out_or_refused_at_once(text):
    """Groups were written out before the letters in them, which then were counted one by one."""
    began = time.process_time()
    with suppress(InputError):
        unrolled(text)
    assert time.process_time() - began < SOON_S
