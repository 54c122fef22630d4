"""Names are data: whatever they hold, the files of every framework say the same as with a plain name, and nothing of it runs.

The names are put into the values of the domain, past the readers that refuse some of them.
"""

from __future__ import annotations

import ast
import json
import shlex
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from hostile_scripts import CANARY, calls, run_all, stubs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.draws import examples

from meshwright.documents.quoting import interpolated
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.frameworks import Options, framework
from meshwright.testing import legal_plans
from meshwright.text import visible

RELEASES = (
    "megatron@0.11", "megatron@0.16", "megatron@main", "bridge@0.3", "bridge@main", "megatron-deepspeed@4efb479d", "deepspeed@0.14",
    "deepspeed@0.19", "chatlearn@b7af31a9", "chatlearn@fsdp", "mindspeed-core-ms@r0.1.0", "mindspeed-core-ms@br_master",
    "mindformers@graph", "mindformers@2.1", "mindspeed-llm@c77308a", "nanotron@0.4", "picotron@59714b1", "torchtitan@0.2",
    "torchtitan@0.3", "torchtitan@main", "accelerate@fsdp1", "accelerate@1.14", "llama-factory-hf@0.9.5",
    "llama-factory-hf@fsdp2", "llama-factory-megatron@main", "ms-swift-megatron@4.6", "nemo-rl-megatron@0.6", "slime@624b824a",
)
"""Each framework as it is written by default, and where its files differ an older release."""
PARTS = (
    "model", "模型", "модель", "é", "$(pwned)", "`pwned`", "; pwned ;", "&& pwned #", "| pwned", "\n pwned \n", "\rpwned",
    "> pwned", '"', "'", '"; pwned; "', "'; pwned; '", "\\", "\\\\", "#", " # ", "*", "?", "~", "{{ 7 }}", "{% raw %}", "}",
    "${HOME}", "${oc.env:HOME}", "\\${x}", "%", "!", "!!", "-", "--nnodes", "=", ": ", "- ", "[a](b)", "<b>", "&amp;", "@",
    "\x1b[31m", "\u202e", "\u2028", "\x85", "\t", "\x7f", "\ufeff", "\U0001f600", "long" * 60, "a b", "]", "null", "EOF",
)
UNWRITABLE = ("\0", "\ud800")
"""What no file can hold: the writers refuse it."""
MARKS = {"model": "MODELMARK", "device": "DEVICEMARK", "cluster": "CLUSTERMARK", "calibration": "CALIBRATIONMARK",
         "label": "LABELMARK", "architecture": "ARCHITECTUREMARK"}
FOLDER = "FOLDERMARK"


def drawn_names(parts, place):
    """Names of some parts each, other ones for every framework; the folder's is one that a file system can hold."""
    parts = parts[place * 5 % len(parts) :] + parts[: place * 5 % len(parts)]
    said = {key: "".join(parts[number * 3 : number * 3 + 1 + (number + place) % 4]) for number, key in enumerate(MARKS)}
    return {**said, "folder": visible("".join(parts[-3:])).replace("/", "")[:80]}


@cache
def plan(release):
    """A plan that the framework allows for a model of whatever name; ChatLearn wants an architecture that it knows."""
    there = framework(release)
    return next(
        (there, case, layout, estimate(case, layout)) for case, layout in legal_plans(release, 20)
        if not there.check(named(case, MARKS, release), layout)
    )


def named(case, said, release):
    architecture = case.model.architecture if release.startswith("chatlearn") else f"{said['architecture']}ForCausalLM"
    return replace(
        case, model=replace(case.model, name=said["model"], architecture=architecture),
        cluster=replace(case.cluster, name=said["cluster"], device=replace(case.cluster.device, name=said["device"])),
    )


def written(release, said):
    """Path -> text of all files of a plan whose names are those."""
    there, case, layout, predicted = plan(release)
    options = Options(estimate=replace(predicted, calibration=said["calibration"]), label=said["label"])
    return {file.path: file.text for file in there.write(named(case, said, release), layout, options=options)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return stubs(tmp_path_factory.mktemp("hostile") / "bin")


def put(files, place, folder):
    (place / folder).mkdir(parents=True)
    for path, text in files.items():
        (place / folder / path).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def plain(programs, tmp_path_factory):
    """Of a release its files with plain names, and script -> the calls that it makes."""
    place, found = tmp_path_factory.mktemp("plain"), {}
    for release in RELEASES:
        found[release] = written(release, MARKS)
        put(found[release], place / release, FOLDER)
    run_all(place, programs)
    known = {release: (files, called(place / release / FOLDER, files)) for release, files in found.items()}
    return lambda release: known[release]  # hypothesis writes out what a test is called with


def called(place, files):
    """Script -> what it called; each must have ended well."""
    found = {}
    for path in files:
        if path.endswith(".sh"):
            notes = place / f"{path}.notes"
            status = Path(f"{notes}.status").read_text().strip()
            assert status == "0", f"{place / path}: {status}: {Path(f'{notes}.out').read_text(errors='replace')}"
            assert calls(notes), f"{place / path} launches nothing"
            found[path] = [[word.replace(str(place), "HERE") for word in words] for words in calls(notes)]
    return found


def instead(value, said):
    """A value in which each plain name is exchanged for the hostile one."""
    if isinstance(value, dict):
        return {instead(key, said): instead(item, said) for key, item in value.items()}
    if isinstance(value, list):
        return [instead(item, said) for item in value]
    if isinstance(value, str):
        for key, mark in MARKS.items():
            value = value.replace(mark, said[key])
    return value


def parsed(path, text):
    if path.endswith(".py"):
        return ast.dump(ast.parse(text))
    return {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}[path.rpartition(".")[2]](text)


def in_recipe(name):
    """A model's name as Bridge spells its recipe."""
    return name.replace(".", "").replace("-", "_")


@pytest.mark.parametrize("unwritable", UNWRITABLE)
def test_what_no_file_can_hold_is_refused(unwritable):
    for release in RELEASES:
        try:
            files = written(release, {**MARKS, "model": f"a{unwritable}b"})
        except InputError as error:
            assert "which no file can hold" in str(error)
        else:
            assert not any(unwritable in text for text in files.values())


@given(st.permutations(PARTS))
@settings(examples(5), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_names_are_data_in_every_file_of_every_framework(programs, plain, tmp_path_factory, parts):
    place = tmp_path_factory.mktemp("drawn")
    everything = {release: drawn_names(parts, number) for number, release in enumerate(RELEASES)}
    found = {release: written(release, said) for release, said in everything.items()}
    for release, files in found.items():
        put(files, place / release, everything[release]["folder"])
    run_all(place, programs)
    for release, said in everything.items():
        files, (before, calls_before) = found[release], plain(release)
        assert set(files) == set(before)
        calls_now = called(place / release / said["folder"], files)
        for path, expected in calls_before.items():
            assert not any(words[0] == CANARY for words in calls_now[path]), f"{release}: {path} ran a name"
            meant = [[word.replace(MARKS["model"], in_recipe(said["model"])) for word in words] for words in expected]
            assert calls_now[path] == meant, f"{release}: {path}"
        for path, text in files.items():
            if path.endswith((".yaml", ".json", ".toml", ".py")):
                values = {**said, "model": interpolated(said["model"])} if release.startswith("chatlearn") else said
                assert parsed(path, text) == instead(parsed(path, before[path]), values), f"{release}: {path}"
            elif path.endswith(".sh"):
                _check_slurm(text, said)
            elif path.endswith(".md"):
                _check_readme(text, before[path], said)


def _check_slurm(text, said):
    for line in text.splitlines():
        if line.startswith("#SBATCH --job-name="):
            (job,) = shlex.split(line.removeprefix("#SBATCH --job-name="))
            assert job.rpartition("-")[0] == visible(said["model"])


def _check_readme(text, before, said):
    """The same blocks as with plain names, the names in the heading, and no HTML."""
    now, then = (MarkdownIt("commonmark").enable("table").parse(each) for each in (text, before))
    assert [token.type for token in now] == [token.type for token in then]
    heading = next(token for token in now if token.type == "inline")
    shown = "".join(child.content for child in heading.children)
    wanted = next(token for token in then if token.type == "inline").content
    for key in ("model", "device"):
        wanted = wanted.replace(MARKS[key], visible(said[key]))
    assert shown.split() == wanted.split()
    assert not any(child.type.startswith(("html", "link", "image")) for token in now for child in token.children or ())
