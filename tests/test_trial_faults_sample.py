"""A sample of the faults that trials and Meshwright itself come to (docs/sweep-faults.md): other seeds by MESHWRIGHT_FUZZ."""

import random
import tempfile

import pytest
from benchmarks.trial_faults.scenes import SCENES, ending

from draws import FUZZ

DRAWN = ("out of memory, others wait", "scheduler cancel", "Meshwright killed")


@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene.name in DRAWN], ids=lambda scene: scene.name)
def test_a_fault_is_classed_and_leaves_nothing_behind(scene, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # leases of its own: tests run beside each other
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = (scene.run or ending)(scene, tmp_path, random.Random(31 + FUZZ), "local")
    assert (found.orphans, found.lost) == (0, 0), found.said
    assert found.right == found.trials, found.said
