"""A user's report of a hang, as the watchdog prints it, through the verb: each kind has a sentence and something that helps."""

from __future__ import annotations

import pytest

import meshwright as mw
from meshwright.diagnose.remedies import remedies
from meshwright.diagnose.rules.ranks import HANGS

LINES = """\
[rank{rank}]:[E419 10:42:28.8 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum={at}, OpType={operation}, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600013 milliseconds before timing out
[rank{rank}]:[E419 10:42:28.9 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or \
timeout) detected by watchdog at work: {at}, last enqueued NCCL work: {last}, last completed NCCL work: {done}.
"""


@pytest.mark.parametrize(("odd", "kind", "ranks"), [
    ({"at": 4480, "last": 4485, "done": 4479}, "late", [2]), ({"operation": "ALLGATHER"}, "mismatch", [2]),
    ({"last": 4485, "done": 4485, "silent": True}, "missing", [2]), ({}, "unknown", [0, 1, 2, 3])])
def test_a_report_of_a_hang_names_its_ranks_and_its_collective(tmp_path, odd, kind, ranks):
    said = {"at": 4486, "operation": "ALLREDUCE", "last": 4489, "done": 4485}
    text = ""
    for rank in range(4):
        lines = LINES.format(rank=rank, **(said | (odd if rank == 2 else {})))
        text += "\n".join(lines.splitlines()[1:]) + "\n" if odd.get("silent") and rank == 2 else lines
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    view = mw.diagnose(mw.DiagnoseRequest(files=[str(path)])).to_json()
    assert view["verdict"] == "hung"
    assert view["hang"] == {"kind": kind, "ranks": ranks, "collective": "ALLREDUCE", "sequence": 4480 if kind == "late" else 4486}
    assert view["findings"][0]["id"] == f"hang.{kind}"


def test_every_kind_of_hang_has_a_sentence_and_something_that_helps():
    assert set(HANGS) == {"missing", "mismatch", "late", "stalled", "unknown"}
    for kind in HANGS:
        assert remedies(f"hang.{kind}", None)
