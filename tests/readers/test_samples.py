"""Real files of public runs give what a correct reader must find; they are not in the repository (``benchmarks/samples``)."""

from __future__ import annotations

import pytest
from benchmarks.samples import ask, directory, everything, right
from tests.draws import together

SAMPLES = directory()


@pytest.mark.skipif(SAMPLES is None, reason="MESHWRIGHT_SAMPLES names no directory")
@together("expected", everything(), called=lambda each: f"{each.file}: {each.what}")
def test_what_is_read_is_what_the_file_says(expected):
    got = ask(expected, SAMPLES)
    assert right(expected, got), got
