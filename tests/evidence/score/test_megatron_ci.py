"""Megatron-LM's own CI runs: allocated bytes of the last stage, a check without a target."""

from importlib.resources import files
from pathlib import Path

from meshwright.evidence.score.megatron_ci import check

DATA = Path(str(files("meshwright.evidence"))) / "data"


def test_rows_that_state_their_vocabulary_are_predicted_and_all_others_counted():
    """Six runs of a 7B model (TP4 and PP4 interleaved, three devices) resolve; without any fit they come out within 7 %."""
    found, skipped = check(DATA)
    assert len(found) == 6
    assert len(found) + sum(skipped.values()) == 362
    assert skipped["vocabulary unstated"] == 116
    assert all(abs(each.error_ratio) < 0.10 for each in found), [(each.test, each.device, each.error_ratio) for each in found]
