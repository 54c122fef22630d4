"""What written files say about giving a probe's peak back is a command that works as it stands."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

import pytest

import meshwright as mw
from meshwright.api import make_case
from meshwright.api.saved import plan_file
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.estimate import estimate
from meshwright.frameworks import Options, framework, frameworks

COMMAND = re.compile(r"meshwright estimate [^`)\n]*")


@pytest.mark.parametrize("name", frameworks())
def test_every_printed_estimate_names_its_plan_as_the_command_line_takes_it(name):
    ascend = name.startswith("mind")
    case = make_case(
        "llama2-7b", cluster_for("ascend-910b" if ascend else "h100-sxm", num_devices=16), global_batch_sequences=64,
        sequence_tokens=4096, framework=name, task="sft" if name == "chatlearn" else "pretrain",
    )
    runner = framework(name).for_case(case)
    stages = (0, 1, 2, 3)
    layouts = [
        Layout(data_parallel=16, num_microbatches=4, optimizer_shards=16 if z >= 1 else 1, gradient_shards=16 if z >= 2 else 1,
               parameter_shards=16 if z == 3 else 1) for z in stages
    ]
    layouts = [replace(each, overlap=runner.overlap(case, each)) for each in layouts]
    able = [each for each in layouts if not runner.check(case, each)]
    if runner.writer is None or not able:
        pytest.skip("writes nothing for this case")
    files = runner.write(case, able[0], options=Options(estimate=estimate(case, able[0]), label="dp16"))
    said = [words for file in files for words in COMMAND.findall(file.text.replace("\n# ", " "))]
    assert all(words.startswith("meshwright estimate --request plan.yaml") for words in said), said


class TestTheCommand:
    """Run as it is printed, with a stage and a size filled in."""

    CASE: ClassVar = {
        "model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 64, "sequence": 8192,
        "layout": "tp2 pp2 mb1 sp zero1",
    }

    def test_it_gives_the_anchored_estimate(self, tmp_path):
        plain = mw.estimate(mw.EstimateRequest(**self.CASE))
        request = {key: value for key, value in self.CASE.items() if key != "layout"}
        (tmp_path / "plan.yaml").write_text(plan_file(request, plain.estimate).text)
        peak = round(plain.estimate.memory_peak_bytes)
        seen = mw.estimate(
            mw.EstimateRequest(request=str(tmp_path / "plan.yaml"), anchor_memory=[f"{plain.estimate.peak_stage}={peak}"])
        ).to_json()
        low, high = seen["interval"]["memory_peak_bytes"]
        wide = plain.estimate.interval.memory_peak_bytes
        assert low < peak < high
        assert wide[0] < low < high < wide[1]
        assert seen["grades"]["memory_peak_bytes"] == "measured"
