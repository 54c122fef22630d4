"""How much text the shell's trimming is tried on."""

import pytest

from meshwright.documents import shell_parameters
from meshwright.documents.shell import parse_shell


@pytest.mark.parametrize(("value", "known"), [("ab345678", True), ("ab3456789", False)])
def test_texts_up_to_the_limit_are_trimmed_and_longer_ones_are_unknown(value, known, monkeypatch):
    monkeypatch.setattr(shell_parameters, "MAX_SUBJECT", 8)
    (command,) = parse_shell(f"X={value}\npython train.py ${{X#ab}}\n").commands
    assert (command.words[-1].text == value[2:]) == known
