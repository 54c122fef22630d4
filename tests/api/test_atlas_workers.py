"""The atlas on several processes, from a request file, and gone on with: the same cells, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import meshwright as mw
from meshwright.cli import main
from meshwright.errors import InputError

SAID = {"device": "h100-sxm", "global_batch": 256, "sequence": 4096}
WORDS = ["--device", "h100-sxm", "--global-batch", "256", "--sequence", "4096"]


def test_cells_are_the_same_on_two_processes():
    """Every figure to the last bit; a model that nothing trains, and a mixture, among them."""
    asked = {"models": ["llama3-8b", "mixtral-8x7b"], "nodes": ["1", "3"], **SAID}
    one, two = (mw.atlas(mw.AtlasRequest(**asked, jobs=jobs)) for jobs in (1, 2))
    assert one.to_json() == two.to_json()
    assert {each.grade for each in two.cells} == {"refined"}


def alive(group: int) -> list[str]:
    """Processes of a group that still run."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            words = (each / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        except (OSError, IndexError):
            continue
        if each.name.isdigit() and int(words[2]) == group and words[0] != "Z":
            found.append(each.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for processes in")
@pytest.mark.parametrize("to_group", [True, False], ids=["Ctrl-C", "kill of one"])
def test_an_interrupt_leaves_no_process_behind(to_group, tmp_path):
    """What was found is said and kept; the same command goes on from there."""
    kept = tmp_path / "cells.jsonl"
    words = [sys.executable, "-m", "meshwright", "atlas", "--models", "llama3-8b,llama3-70b,mixtral-8x7b,deepseek-v3", *WORDS,
             "--nodes", "1..512", "--jobs", "2", "--keep", str(kept), "--json"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    until = time.monotonic() + 120
    while time.monotonic() < until and (not kept.exists() or kept.read_bytes().count(b"\n") < 4):
        time.sleep(0.05)
    assert len(alive(running.pid)) >= 3, "the command and two that search for it"
    os.killpg(running.pid, signal.SIGINT) if to_group else os.kill(running.pid, signal.SIGINT)
    said, complaints = running.communicate(timeout=120)
    assert running.returncode in (130, -signal.SIGINT), complaints
    assert b"Traceback" not in complaints
    until = time.monotonic() + 10
    while alive(running.pid) and time.monotonic() < until:  # the tracker of Python's own ends a moment behind the command
        time.sleep(0.05)
    assert alive(running.pid) == []
    document = json.loads(said)
    assert not document["complete"] and document["cells"]
    assert kept.read_bytes().count(b"\n") >= 4


def test_a_request_file_says_what_options_do(tmp_path):
    """Its model and nodes stand where none are named; the command line wins."""
    file = tmp_path / "request.yaml"
    file.write_text("model: llama3-8b\nlayers: 8\nlaunch: graphs=none\ndevice: h100-sxm\nnodes: 2\nglobal_batch: 256\n"
                    "sequence: 4096\nframework: megatron\ntop: 3\n", encoding="utf-8")
    found = mw.atlas(mw.AtlasRequest(request=str(file), coarse=True))
    words = {"models": ["llama3-8b"], "layers": 8, "launch": "graphs=none", "nodes": [2], "framework": "megatron"}
    said = mw.atlas(mw.AtlasRequest(**words, **SAID, coarse=True))
    assert found.cells == said.cells and found.cells[0].devices == 16
    more = mw.atlas(mw.AtlasRequest(request=str(file), models=["qwen2.5-7b"], nodes=[1], coarse=True))
    assert [(each.series, each.devices) for each in more.cells] == [("qwen2.5-7b", 8)]
    best = mw.plan(mw.PlanRequest(request=str(file), top=1)).result.plans[0].estimate
    refined = mw.atlas(mw.AtlasRequest(request=str(file))).cells[0]
    assert (refined.label, refined.step_s) == (best.label, best.step_s)


BAD = {
    "no process": ({"models": ["llama3-8b"], "nodes": [1], "jobs": 0, **SAID}, "jobs"),
    "words": ({"models": ["llama3-8b"], "nodes": [1], "jobs": "many", **SAID}, "jobs"),
    "more than anybody has": ({"models": ["llama3-8b"], "nodes": [1], "jobs": 10**6, **SAID}, "jobs"),
    "nothing to search": ({"csv": "shipped", "jobs": 2}, "--jobs"),
    "measured rows have their layers": ({"csv": "shipped", "layers": 8}, "--layers"),
    "measured runs do not say their samples": ({"csv": "shipped", "lengths": "lengths.txt"}, "--lengths"),
    "packs of nothing": ({"models": ["llama3-8b"], "nodes": [1], "max_tokens": 8192, **SAID}, "--max-tokens"),
    "no such file": ({"request": "nowhere.yaml"}, "nowhere.yaml"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_said(name):
    said, word = BAD[name]
    with pytest.raises(InputError) as found:
        mw.atlas(mw.AtlasRequest(**said))
    assert any(word in str(each) for each in found.value.messages)


def test_a_page_of_its_own_is_replaced_where_it_goes_on(tmp_path, capsys):
    """--html with --keep called again writes its page anew without --force; one that somebody changed stays."""
    page, kept = tmp_path / "page.html", tmp_path / "cells.jsonl"
    words = ["atlas", "--models", "llama3-8b", "--nodes", "1", "--coarse", *WORDS, "--keep", str(kept), "--html", str(page)]
    assert main(words) == 0
    assert main([each if each != "1" else "1,2" for each in words]) == 0
    assert "16 devices" in page.read_text(encoding="utf-8")
    page.write_text("mine", encoding="utf-8")
    assert main(words) == 2
    assert page.read_text(encoding="utf-8") == "mine" and "exists" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
