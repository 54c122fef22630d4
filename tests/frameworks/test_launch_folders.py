"""A launch folder is read as its user reads it: what README, scripts and probe say of themselves is so, of every framework."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

import meshwright as mw
from meshwright.api.launch_files import launch_files
from meshwright.api.saved import plan_file
from meshwright.frameworks import Options, framework, frameworks
from meshwright.frameworks.probe import smaller
from meshwright.testing import legal_plans

RELEASES = [f"{name}@{framework(name).releases[-1] if name != 'chatlearn' else 'b7af31a9'}" for name in frameworks()]
RELEASES += ["mindformers@experimental", "mindformers@graph", "mindspeed-core-ms@r0.1.0", "mindspeed-core-ms@br_master",
             "torchtitan@0.2", "torchtitan@0.3", "bridge@0.3", "megatron@0.12", "chatlearn@fsdp", "accelerate@fsdp1"]
OWN_PROGRAM = {"deepspeed", "accelerate"}
"""Their checkpoints are those of the user's program."""


@cache
def plan_of(name):
    return next(plan for plan in legal_plans(name, 40, seed=5) if plan[1].world > plan[0].cluster.devices_per_node)


@cache
def files_of(name, *, probe=False):
    there, (case, layout) = framework(name), plan_of(name)
    if probe:
        case, layout = smaller(there, case, layout) or (case, layout)
    options = Options(train_iters=3, is_probe=True) if probe else Options()
    return {file.path: file.text for file in there.write(case, layout, options=options)}


def readme(name, *, probe=False):
    return files_of(name, probe=probe)["README.md"]


@pytest.mark.parametrize("name", RELEASES)
def test_the_readme_names_the_framework_that_it_is_for(name):
    assert framework(name).title in readme(name).partition("Written by Meshwright for ")[2].partition("\n")[0]


@pytest.mark.parametrize("name", RELEASES)
def test_what_is_to_be_filled_in_is_used(name):
    """``DATASET`` stood in torchtitan's script of main, which nothing read."""
    for path, text in files_of(name).items():
        for blank in re.findall(r'^((?!HERE)[A-Z_]+)="\$\{\1:', text, re.MULTILINE) if path.endswith(".sh") else ():
            beside = text.replace(f"export {blank}\n", "").replace(f'{blank}="${{{blank}:', "")
            assert re.search(rf"\$\{{?{blank}\b|export {blank}\b", beside), f"{path}: {blank}"


@pytest.mark.parametrize("name", RELEASES)
def test_what_becomes_of_checkpoints_is_said(name):
    assert "checkpoint" in readme(name).lower() or name.partition("@")[0] in OWN_PROGRAM


@pytest.mark.parametrize("name", RELEASES)
def test_a_probe_explains_no_probe_and_keeps_nothing(name):
    text, scripts = readme(name, probe=True), "".join(text for path, text in files_of(name, probe=True).items() if "md" not in path)
    assert "\n## Probe\n" not in text and "checkpoint.save=\"" not in scripts
    assert "ORGANISATION/MODEL" not in text + scripts


@pytest.mark.parametrize("name", ["megatron@0.16", "nanotron@0.4"])
def test_several_nodes_start_only_with_the_address_of_the_first(name, tmp_path):
    path, text = next((path, text) for path, text in files_of(name).items() if path in {"train.sh", "launch.sh"})
    (tmp_path / path).write_text(text)
    done = subprocess.run(["/bin/bash", path], cwd=tmp_path, env={"NODE_RANK": "1", "PATH": "/usr/bin:/bin"}, capture_output=True,
                          check=False, text=True)
    assert done.returncode and "MASTER_ADDR" in done.stderr


def test_what_chatlearn_saves_stands_beside_its_plan():
    for name in ("chatlearn@b7af31a9", "chatlearn@fsdp"):
        assert 'OUTPUT_DIR="${OUTPUT_DIR:-$HERE/output}"' in files_of(name)["launch.sh"]


def test_mindspeed_core_ms_runs_its_programs_on_mindspore():
    script = files_of("mindspeed-core-ms@r0.2.0")["launch.sh"]
    assert "exec msrun " in script and "--ai-framework mindspore" in script and "torchrun" not in script
    assert "exec torchrun " in files_of("mindspeed-llm@c77308a")["launch.sh"]


@pytest.mark.parametrize("layers", [32, 20])
def test_the_smaller_run_says_how_many_layers_it_trains(layers):
    """A plan without a pipeline is probed with all its layers, which the README called fewer."""
    request = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 2, "sequence": 2048, "global_batch": 64,
               "framework": "deepspeed", "layers": layers}
    answer = mw.estimate(mw.EstimateRequest(**request, layout="mb1 zero3"))
    files = {file.path: file.text for file in launch_files(answer.given, answer.estimate.layout, answer.estimate)}
    assert f"`probe/` trains all {layers} layers on one node, 8 devices" in files["README.md"]
    cut = f" with {layers} layers (`num_hidden_layers`)" if layers < 32 else ","
    assert f"The training program builds `meta-llama/meta-llama-3-8b`{cut}" in files["probe/README.md"]


def test_a_saved_plan_names_its_framework():
    answer = mw.estimate(mw.EstimateRequest(model="llama3-8b", device="h100-sxm", nodes=1, sequence=2048, global_batch=64,
                                            framework="bridge@0.3", layout="tp2 mb1 zero1"))
    assert "--to bridge@0.3 --out DIR" in plan_file(answer.given.request, answer.estimate).text
