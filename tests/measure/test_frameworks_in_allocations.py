"""A framework's own launch files under Slurm with ``--reuse``: one allocation for all trials, its ranks started for each.

Slurm is pretended here, and the framework is a program that prints Megatron's log; docs/sweep.md has the same under a real Slurm.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pretended_slurm import PretendedSlurm

import meshwright as mw
from meshwright.measure.executors import slurm_asking
from meshwright.measure.executors.slurm import Slurm

STAND_IN = Path(__file__).parents[2] / "benchmarks" / "stand_in.py"
TORCHRUN = f"""#!/bin/bash
echo "port $MASTER_PORT" | tr -d " " >> "$STARTS"
kind=ok; ms=300
case "$*" in *"--tensor-model-parallel-size 2"*) kind=oom;; *"--micro-batch-size 2"*) ms=200;; esac
exec python3 {STAND_IN} $kind $ms 4  # it fails before anybody may judge it by its speed
"""
LAYOUTS = ("dp2 mb1 zero1", "dp2 mb2 zero1", "tp2 sp mb1", "pp2 mb1 zero1")


@pytest.mark.parametrize("reuse", [False, True], ids=["jobs", "allocations"])
def test_an_allocation_is_reused_and_ranks_are_not(reuse, tmp_path, monkeypatch):
    slurm = PretendedSlurm(room=1)
    monkeypatch.setattr(slurm_asking, "asked", slurm)
    monkeypatch.setattr(Slurm, "check", lambda *_: None)
    monkeypatch.setattr(Slurm, "every_s", 0.05)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text(TORCHRUN)
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    (tmp_path / "layouts.txt").write_text("\n".join(LAYOUTS))
    try:
        found = mw.sweep(mw.SweepRequest(
            model="llama3-8b", layers=4, device="h100-sxm", devices=2, devices_per_node=2, global_batch=8, sequence=4096,
            framework="megatron", layouts="layouts.txt", steps=9, executor=("slurm",), reuse=reuse, yes=True,
        )).to_json()
    finally:
        slurm.end()
    assert sorted(each["status"] for each in found["trials"]) == ["ok", "ok", "ok", "oom"]
    assert found["best"]["label"] == "tp1 pp1 dp2 mb2 zero1" and found["best"]["step_s"] == pytest.approx(0.21)
    assert len(slurm.jobs) == (1 if reuse else len(LAYOUTS)), "jobs that left the queue"
    assert len((tmp_path / "starts").read_text().split()) == len(LAYOUTS), "the ranks of each layout are its own"
