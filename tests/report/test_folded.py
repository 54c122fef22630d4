"""A label in a narrow column is broken where a reader expects it, and nothing of it is lost."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.report.folded import fold

LABELS = st.lists(st.text(alphabet="abc=1,;:[]", min_size=1, max_size=40), min_size=1, max_size=6).map(" ".join)


@given(LABELS, st.integers(1, 60))
def test_lines_are_the_label_and_fit(label, width):
    lines = fold(label, width)
    assert "".join(lines).replace(" ", "") == label.replace(" ", "")
    assert all(len(line) <= width for line in lines)


def test_words_break_behind_punctuation():
    assert fold("tp8 recompute=selective:layernorm,mlp_act", 24) == ["tp8", "recompute=selective:", "layernorm,mlp_act"]
    assert fold("layers=[10,11;12,13]", 12) == ["layers=[10,", "11;12,13]"]
