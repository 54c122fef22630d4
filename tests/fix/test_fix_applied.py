"""What ``fix --apply`` writes into the files of a framework reads back as exactly the layout that was proposed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.api import make_case, read_files
from meshwright.catalog import cluster_for
from meshwright.cli import main
from meshwright.domain.label import label, parse_layout
from meshwright.estimate import estimate
from meshwright.estimate.overlap import overlap_for
from meshwright.frameworks import framework
from meshwright.frameworks.settings import Given

TIGHTER = 0.85
"""Share of its own need that a layout is given."""
LAYOUTS = {
    "megatron": ("h100-sxm", 8192, "tp1 pp4 mb2 zero1"),
    "mindformers": ("ascend-910b", 4096, "tp2 pp2 mb2 sp zero2"),
    "deepspeed": ("h100-sxm", 8192, "mb2 zero2"),
    "torchtitan": ("h100-sxm", 8192, "mb2 zero3"),
    "nanotron": ("h100-sxm", 8192, "tp2 pp2 mb2 sp zero1"),
    "bridge": ("h100-sxm", 8192, "tp1 pp4 mb2 zero1"),
    "picotron": ("h100-sxm", 4096, "tp2 pp2 mb2"),
    "accelerate": ("h100-sxm", 8192, "mb2 zero3"),
    "llama-factory-hf": ("h100-sxm", 8192, "mb2 zero2"),
    "mindspeed-llm": ("ascend-910b", 4096, "tp2 pp2 mb2 sp zero1"),
    "mindspeed-core-ms": ("ascend-910b", 4096, "tp2 pp2 mb2 sp zero1"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_applied_is_what_was_proposed(name, tmp_path, capfd):
    device, sequence, text = LAYOUTS[name]
    case = make_case(
        "llama3-8b", cluster_for(device, num_devices=16), global_batch_sequences=128, sequence_tokens=sequence, framework=name
    )
    runner = framework(name).for_case(case)
    layout = parse_layout(
        text, num_devices=16, global_batch_sequences=128, devices_per_node=8, model=case.model, overlap=overlap_for(case)
    )
    layout = runner.normal(case, layout)
    written = [file for file in runner.write(case, layout) if "probe" not in file.path and not file.path.endswith(".md")]
    for file in written:
        (tmp_path / file.path).write_text(file.text)
    paths = [str(tmp_path / file.path) for file in written]
    bound = TIGHTER * estimate(case, layout).memory_reserved_bytes
    shared = ["--model", "llama3-8b", "--device", device, "--devices", "16", "--global-batch", "128", "--sequence", str(sequence)]

    status = main(["fix", *paths, "--from", name, *shared, "--memory", f"{bound:.0f}", "--max-edits", "1", "--apply", "--json"])
    view = json.loads(capfd.readouterr().out)
    assert status == 0
    change = view["changes"][0]
    assert set(view["applied"]) == {edit["file"] for edit in change["edits"]}

    given = Given(num_devices=16, model=case.model, global_batch_sequences=128, sequence_tokens=sequence)
    after = read_files(paths, name, given=given).layout
    proposed = parse_layout(change["label"], num_devices=16, global_batch_sequences=128, devices_per_node=8, model=case.model,
                            overlap=overlap_for(case))
    assert runner.normal(case, after) == runner.normal(case, replace(proposed, overlap=after.overlap)), label(after)
    assert estimate(case, after).memory_reserved_bytes <= bound, "the file's own layout, estimated again"
    assert runner.check(case, after) == ()
    untouched = {str(tmp_path / file.path): file.text for file in written if str(tmp_path / file.path) not in view["applied"]}
    assert {path: Path(path).read_text() for path in untouched} == untouched
