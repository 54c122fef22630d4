"""What the README beside a plan says is run as it stands, and what starts is the plan: by hand, under Slurm, one node and two."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from launching import Call, called, filled, pretended, printed_code, printed_commands, rendezvous, run_commands

import meshwright as mw
from meshwright.cli import main
from meshwright.domain.label import label
from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given

SCRIPT_WORDS = ("--noted", "two words")
"""What is passed on to the program."""
PLANS = {
    "megatron": "tp2 pp2 vp2 mb1 sp zero1 recompute=full:3", "bridge": "tp2 pp2 mb1 sp zero1",
    "megatron-deepspeed": "tp2 pp2 mb1 zero1", "deepspeed": "mb1 zero3", "chatlearn": "tp2 pp2 vp2 mb1 sp zero1",
    "mindspeed-core-ms": "tp2 pp2 mb1 sp zero1", "mindformers": "tp2 mb1 sp zero3", "mindformers@graph": "tp2 pp2 mb1 sp zero1",
    "mindspeed-llm": "tp2 pp2 mb1 sp zero1", "nanotron": "tp2 pp2 mb1 sp zero1", "picotron": "tp2 pp2 mb1",
    "torchtitan": "tp2 mb1 sp zero3", "torchtitan@0.2": "mb1 zero3", "accelerate": "mb1 zero3",
    "llama-factory-hf": "mb1 zero2", "llama-factory-hf@fsdp2": "mb1 zero3",
    "llama-factory-megatron": "tp2 pp2 mb1 sp zero1", "ms-swift-megatron": "tp2 pp2 mb1 sp zero1",
    "mindspeed-core-ms@br_master": "tp2 pp2 mb1 sp zero1",
}


@dataclass(frozen=True)
class Started:
    """A launch folder, and what each of its printed commands started."""

    name: str
    nodes: int
    folder: Path
    readme: str
    calls: dict[str, list[Call]]
    """Printed command (by hand: as node 0, 1, ... were told) -> calls."""
    failures: dict[str, str]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Every plan, exported and run from within its folder, all by one bash."""
    place = tmp_path_factory.mktemp("printed")
    programs, spool = pretended(place / "programs"), place / "spool"
    spool.mkdir()
    runs, found = [], []
    for name, layout in PLANS.items():
        for nodes in (1, 2):
            folder = exported(place, name, layout, nodes)
            commands = commands_of(folder, nodes, place)
            notes = [folder.parent / f"{folder.name}-{number}.notes" for number in range(len(commands))]
            runs += [(folder, note, command) for note, (_, command) in zip(notes, commands, strict=True)]
            found.append((name, nodes, folder, commands, notes))
    run_commands(runs, programs, spool)
    return {
        (name, nodes): Started(
            name, nodes, folder, (folder / "README.md").read_text(),
            {said: called(note) for note, (said, _) in zip(notes, commands, strict=True)},
            {said: Path(f"{note}.out").read_text() for note, (said, _) in zip(notes, commands, strict=True)
             if Path(f"{note}.status").read_text().strip() != "0"},
        )
        for name, nodes, folder, commands, notes in found
    }


def exported(place, name, layout, nodes):
    """A plan's folder as ``export`` writes it, and empty checkouts where the README's paths will lead."""
    ascend = name.startswith("mind")
    plan = place / "plan.yaml"
    plan.write_text(f"""\
meshwright_plan: 1
request: {{model: {"qwen3-8b" if name.startswith(("chatlearn", "mindspeed-llm")) else "llama3-8b"},
  device: {"ascend-910b" if ascend else "h100-sxm"}, nodes: {nodes}, global_batch: 64, sequence: 4096,
  task: {"sft" if name == "chatlearn" else "pretrain"}}}
layout: {layout}
""")
    folder = place / f"{name}-{nodes}"
    mw.export(mw.ExportRequest(plan=str(plan), to=name, out=str(folder)))
    for path in re.findall(r"/path/to/([\w.-]+)", (folder / "README.md").read_text()):
        (place / path).mkdir(exist_ok=True)
    return folder


def commands_of(folder, nodes, place):
    """(As printed and for which node, as typed) of every command that starts something."""
    readme, found = (folder / "README.md").read_text(), []
    for where, command in printed_commands(readme):
        for node in range(nodes if "<first node>" in command else 1):
            typed = filled(command, node, place)
            found.append((f"{where}: {node}", f"{typed} {shlex.join(SCRIPT_WORDS)}" if "PRINT_ARGS" not in command else typed))
    probes = [code for code in printed_code(readme) if re.search(r"\bbash probe\.sh$", code)]
    return [*found, *((f"probe: {code}", filled(code, 0, place)) for code in probes)]


@pytest.mark.parametrize("nodes", (1, 2))
@pytest.mark.parametrize("name", PLANS)
class TestAPlan:
    def test_everything_printed_ends_well(self, started, name, nodes):
        assert not started[name, nodes].failures
        ways = {key.partition(":")[0] for key in started[name, nodes].calls}
        assert {"Slurm", "here" if nodes == 1 else "by hand, on each of 2 nodes"} <= ways

    def test_by_hand_and_under_slurm_the_same_starts_once_on_each_node(self, started, name, nodes):
        there = started[name, nodes]
        by_hand = [call for key, calls in there.calls.items() if key.startswith(("here", "by hand")) for call in calls]
        slurm = there.calls["Slurm: 0"]
        for calls in (by_hand, slurm):
            met = [rendezvous(call) for call in calls]
            assert [each.node for each in met] == list(range(nodes))
            assert {(each.nodes, each.devices) for each in met} == {(nodes, 8)}
            assert len({(each.host, each.port, each.program) for each in met}) == 1, "they never meet"
            assert met[0].host == ("host0" if nodes == 2 or calls is slurm else "localhost")
            assert met[0].program[-2:] == SCRIPT_WORDS
        assert [rendezvous(call).program for call in by_hand] == [rendezvous(call).program for call in slurm]
        assert [call.folder for call in by_hand] == [call.folder for call in slurm]

    def test_what_starts_is_the_plan_that_the_readme_names(self, started, name, nodes):
        """What bash made of the script, read back as files, is the label that the README gives."""
        there = started[name, nodes]
        runner = framework(name)
        said = re.search(r"Layout: `([^`]+)`", there.readme)[1]
        call = there.calls["Slurm: 0"][0]
        words = [word for word in call.words if word not in SCRIPT_WORDS]
        beside = re.findall(rf"{re.escape(str(there.folder))}/\S+\.(?:yaml|json|toml)", "\n".join(words))
        files = [File(path=each, text=Path(each).read_text()) for each in beside]
        files.append(File(path="launch.sh", text=shlex.join(words) + "\n"))
        model = mw.load_model("qwen3-8b" if name.startswith(("chatlearn", "mindspeed-llm")) else "llama3-8b")
        reading = runner.read(files, given=Given(num_devices=8 * nodes, devices_per_node=8, model=model, global_batch_sequences=64,
                                                 sequence_tokens=4096), version=runner.version)
        assert reading.layout is not None, [str(each) for each in reading.messages]
        assert label(reading.layout) == said


SIZES = {"BYTES": "4.8e10", "XMiB": "45000MiB", "...MiB": "45000MiB", "STAGE": "0", "PLAN": "plan.yaml"}
"""What is printed for a peak that was read, a stage and a plan, and what somebody types there."""


@pytest.mark.parametrize("name", PLANS)
def test_every_command_of_ours_that_is_printed_runs(started, name, monkeypatch, tmp_path, capsys):
    """From the folder itself: the anchored estimate, by a stage or by the smaller run, and the export of another probe."""
    folder = started[name, 2].folder
    monkeypatch.chdir(folder)
    texts = [path.read_text() for path in folder.iterdir() if path.suffix in {".md", ".sh"}]
    printed = {words for text in texts for words in re.findall(r"\bmeshwright ((?:estimate|export) [^`)\n]*)", text)}
    for words in sorted(printed):
        typed = words.replace("DIR", str(tmp_path))
        for blank, size in SIZES.items():
            typed = typed.replace(blank, size)
        assert main(shlex.split(typed)) == 0, f"{typed}: {capsys.readouterr().err}"
