"""Edges of what the shell reader takes: long texts, and several targets of a here-document."""

import pytest

from meshwright.documents import shell_parameters
from meshwright.documents.shell import parse_shell


@pytest.mark.parametrize(("value", "known"), [("ab345678", True), ("ab3456789", False)])
def test_texts_up_to_the_limit_are_trimmed_and_longer_ones_are_unknown(value, known, monkeypatch):
    monkeypatch.setattr(shell_parameters, "MAX_SUBJECT", 8)
    (command,) = parse_shell(f"X={value}\npython train.py ${{X#ab}}\n").commands
    assert (command.words[-1].text == value[2:]) == known


def test_a_here_document_goes_to_the_last_of_its_targets_under_its_own_words_where_these_are_unknown():
    lines = 'cat > a.txt > "$(date)/b.yaml" <<EOF\nx: 1\nEOF\npython t.py\n'
    assert dict(parse_shell(lines).embedded) == {'"$(date)/b.yaml"': ("x: 1\n", 2)}
