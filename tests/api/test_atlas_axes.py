"""The axes of an atlas: lists of numbers, and models of a size."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.api.cells import axes
from meshwright.api.cells.sizes import model_of, parameters_of, size
from meshwright.catalog.families import families
from meshwright.errors import InputError
from meshwright.perf.parameters import total_parameters

COUNTS = st.integers(1, 100_000)


@examples(60)
@given(first=st.integers(1, 5000), doublings=st.integers(0, 8), step=st.integers(1, 50), times=st.integers(0, 40))
def test_ranges_double_or_step(first, doublings, step, times):
    last = first * 2**doublings
    assert axes.numbers(f"{first}..{last}") == tuple(first * 2**place for place in range(doublings + 1))
    assert axes.numbers(f"{first}..{last + first - 1}") == axes.numbers(f"{first}..{last}"), "an end between two is not passed"
    assert axes.numbers(f"{first}..{first + times * step}+{step}") == tuple(range(first, first + times * step + 1, step))


@examples(40)
@given(numbers=st.lists(COUNTS, min_size=1, max_size=20))
def test_a_list_is_its_numbers_and_lists_together_rise(numbers):
    word = ",".join(map(str, numbers))
    assert axes.numbers(word) == tuple(numbers)
    assert axes.together([axes.numbers(word), tuple(numbers[:1])]) == tuple(sorted(set(numbers)))


@pytest.mark.parametrize("word", ["", "0", "1,", "a", "4..2", "..", "1..", "1..4+0", "1..2..4", "1e99", "-1", "1..100000+1", "1.5"])
def test_what_is_no_list_of_counts_is_refused(word):
    with pytest.raises(InputError):
        axes.numbers(word)


def test_words_keep_a_file_whose_name_has_a_comma(tmp_path):
    path = tmp_path / "a,b.yaml"
    path.write_text("x")
    assert axes.words(["a, b,a", str(path), "c"]) == ["a", "b", str(path), "c"]


SIZES = st.one_of(
    st.floats(0.3, 999.0).map(lambda each: f"{each:.3g}b"), st.floats(1.0, 19.0).map(lambda each: f"{each:.3g}t")
)


@examples(60)
@given(word=SIZES)
def test_a_size_is_a_shape_near_it_that_divides(word):
    own = families()["playbook"]
    model = model_of(size(word), "playbook")
    attention = model.kinds[0].attention
    assert model.hidden == attention.num_heads * attention.head_dim and attention.num_heads % attention.num_key_value_heads == 0
    assert model == model_of(size(word.upper()), "playbook")
    if size(word) not in own.known:
        assert abs(log(float(total_parameters(model)) / parameters_of(size(word)))) <= log(1.0 + own.within_ratio) + 1e-9
        assert model.num_layers % own.layers_multiple == 0 and attention.head_dim == own.head_dim
        assert 1 / own.aspect_factor <= model.hidden / model.num_layers / own.aspect <= own.aspect_factor


@pytest.mark.parametrize(("word", "billions", "layers", "hidden"), [
    ("1b", 1.3422, 16, 2048), ("3b", 3.5736, 28, 3072), ("8b", 8.8584, 32, 4096), ("80b", 79.9938, 80, 8192),
])
def test_known_sizes_are_those_of_the_playbook(word, billions, layers, hidden):
    """Source: columns n_params_B, n_layers and hidden of the playbook rows of the corpus."""
    model = model_of(word, "playbook")
    assert (model.num_layers, model.hidden, model.vocabulary) == (layers, hidden, 131072)
    assert float(total_parameters(model)) / 1e9 == pytest.approx(billions, rel=1e-4)


@pytest.mark.parametrize("word", ["", "8", "b", "8x", "1m", "99t", "8b b", "1e9b", "-8b", "0b"])
def test_what_is_no_size_is_refused(word):
    with pytest.raises(InputError):
        size(word)
