"""Settings of a launch in the files of every framework: what is written is read back, and what is not is said beside the files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import judges

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.launch import COUNTS, OFF, OFFLOAD_MODULES, SETTINGS, launch_words, parse_launch
from meshwright.domain.launching import launched, settings_of
from meshwright.domain.layout import Full, Layout
from meshwright.errors import InputError
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.launching import ways
from meshwright.testing.promises import read_back

RELEASES = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases]
MODELS = ("llama3-8b", "llama2-7b", "mixtral-8x7b", "qwen3-30b-a3b")
EACH = {name: st.sampled_from(values) for name, values in SETTINGS.items() if name != "vision"}
EACH |= {"offload_layers": st.sampled_from(["0", "4"]), "slice_tokens": st.sampled_from(["0", "512"])}
EACH["offload_modules"] = st.sampled_from(["none", "core_attn", OFFLOAD_MODULES[-1]])


def _parses(settings):
    try:
        return parse_launch(launch_words(settings)) == settings
    except InputError:
        return False


CHOSEN = st.fixed_dictionaries({}, optional=EACH).filter(_parses)


@cache
def planned(words):
    """Cases that a release trains, with a layout that it takes."""
    there, found = framework(words.partition("@")[0]).at(words.partition("@")[2]), []
    device = "ascend-910b" if words.startswith("mind") else "h100-sxm"
    for model in MODELS:
        case = make_case(model, cluster_for(device, num_devices=16), global_batch_sequences=64, sequence_tokens=4096,
                         framework=words)
        runner = there.for_case(case)
        for stage in runner.features.zero_stages:
            for recompute in (Layout().recompute, Full()):
                shards = [16 if stage >= least else 1 for least in (1, 2, 3)]
                layout = Layout(data_parallel=16, num_microbatches=4, optimizer_shards=shards[0], gradient_shards=shards[1],
                                parameter_shards=shards[2], recompute=recompute)
                layout = replace(layout, overlap=runner.overlap(case, layout))
                if not runner.check(case, layout) and model not in [each.model.name for _, each, _ in found]:
                    found.append((runner, case, layout))
    return found


@pytest.mark.parametrize("words", RELEASES)
def test_every_release_trains_some_model_here(words):
    assert planned(words)


@pytest.mark.parametrize("words", RELEASES)
@examples(12)
@given(data=st.data())
def test_a_setting_comes_back_or_is_said_not_to_be_carried(words, data):
    runner, case, layout = data.draw(st.sampled_from(planned(words)))
    settings = data.draw(CHOSEN)
    asked = launched(case, settings)
    if runner.check(asked, layout):  # refused in words: nothing is written
        return
    files = runner.write(asked, layout)
    reading = read_back(runner, asked, files)
    again = dict(each.split("=") for each in (reading.said.launch or "").split())
    back, own = settings_of(launched(case, again)), settings_of(asked)
    said = {str(each.values["name"]): each for each in runner.told(asked).remarks}
    readme = next(file.text for file in files if file.path == "README.md")
    for name in settings:
        if name in own and back.get(name, OFF.get(name)) != own[name]:
            assert name in said, f"{name}={own[name]} is lost without a word"
    for name, message in said.items():
        assert f"{name}={own[name]}" in readme
        assert "\n" not in message.words
    assert not reading.messages


@pytest.mark.parametrize("words", RELEASES)
def test_a_launch_that_nobody_chose_adds_only_what_plans_assume_and_the_framework_does_not_do(words):
    always = {key for way in ways() if way.framework == words.partition("@")[0] and way.always for key in way.keys}
    for runner, case, _ in planned(words):
        told = runner.told(case)
        assert set(told.keys) == always
        assert not told.variables
        assert not told.remarks


@pytest.mark.parametrize(("words", "task"), [
    (words, task) for words in RELEASES if any(way.framework == words.partition("@")[0] and way.always for way in ways())
    for task in framework(words).features.tasks
])
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b", "qwen3-4b"])
def test_what_plans_assume_of_the_host_stands_in_the_files_whatever_is_tuned(words, task, model):
    """Recipes that tune leave the collection of garbage to Python."""
    runner = framework(words)
    case = make_case(model, cluster_for("h100-sxm", num_devices=8), global_batch_sequences=64, sequence_tokens=4096,
                     framework=words, task=task)
    layout = Layout(data_parallel=8, num_microbatches=8, optimizer_shards=8)
    for asked, host in ((case, "bound"), (launched(case, {"host": "plain"}), "plain")):
        said = dict(each.split("=") for each in (read_back(runner, asked, runner.write(asked, layout)).said.launch or "").split())
        assert said.get("host", "plain") == host


@pytest.mark.parametrize("way", [way for way in ways() if way.framework != "*"],
                         ids=lambda way: f"{way.framework} {way.setting}={way.value}")
def test_keys_of_the_table_are_keys_of_the_framework_at_its_releases(way):
    there = framework(way.framework)
    spanned = [release for release in there.releases if way.fits(release, there.releases)]
    assert spanned
    for release in spanned:
        surface = there.at(release).surface()
        assert all(surface.find(key, release) is not None for key in way.keys), release
    assert way.without <= there.surface().keys.keys() | {"PYTORCH_CUDA_ALLOC_CONF"}
    if not way.words and not way.by_writer:
        assert way.keys


@pytest.mark.parametrize(("words", "launch", "name", "lines"), [
    ("megatron@0.16", "deterministic", "train.sh", ["--deterministic-mode", "export NCCL_ALGO=Ring",
                                                    "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"]),
    ("megatron@0.16", "graphs=step", "train.sh", ["--cuda-graph-scope full_iteration", "--no-check-for-nan-in-loss-and-grad"]),
    ("megatron@0.18", "graphs=step", "train.sh", ["--cuda-graph-impl full_iteration"]),
    ("bridge@0.3", "deterministic", "launch.sh", ["model.deterministic_mode=True", "model.cross_entropy_loss_fusion=False"]),
    ("torchtitan@0.2", "deterministic optimizer=plain", "config.toml", ["deterministic = true", 'implementation = "foreach"']),
    ("torchtitan@0.3", "deterministic graphs=none", "launch.sh", ["--debug.deterministic", "--training.disable-cuda-graphs"]),
    ("nanotron@0.4", "optimizer=plain", "config.yaml", ["torch_adam_is_fused: false"]),
    ("mindspeed-llm@c77308a", "deterministic", "launch.sh", ["--npu-deterministic", "export HCCL_DETERMINISTIC=true"]),
])
def test_the_keys_stand_where_the_framework_reads_them(words, launch, name, lines):
    runner, case, layout = planned(words)[0]
    files = {file.path: file.text for file in runner.write(launched(case, parse_launch(launch)), layout)}
    plain = {file.path: file.text for file in runner.write(case, layout)}
    for line in lines:
        assert line in files[name]
        assert line not in plain[name]


def test_what_a_setting_forbids_is_left_out():
    runner, case, layout = planned("megatron@0.16")[0]
    case = replace(case, implementation=replace(case.implementation, logit_bytes=2.0))
    files = [{file.path: file.text for file in runner.write(launched(case, parse_launch(words)), layout)}["train.sh"]
             for words in ("deterministic", "host=plain", "")]
    assert ["--cross-entropy-loss-fusion" in text for text in files] == [False, True, True]
    assert ["--manual-gc" in text for text in files] == [True, False, True]


def test_settings_are_all_looked_at():
    """Of a framework that has no row of its own, only what every run has by itself goes unsaid."""
    said = {way.setting for way in ways() if way.framework == "*"}
    assert said >= {*SETTINGS, *COUNTS, "offload_modules"}


ORACLES = [each for each in judges() if each.framework in RELEASES]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("parser", ORACLES, ids=[each.framework for each in ORACLES])
def test_the_framework_s_own_parser_takes_what_is_written(parser):
    if parser.absent():
        pytest.skip(parser.absent())
    written = []
    for runner, case, layout in planned(parser.framework):
        for words in ("deterministic", "graphs=none", "graphs=partial", "graphs=step", "host=plain", "routing=balanced",
                      "dispatcher=flex", "optimizer=plain deterministic"):
            asked = launched(case, parse_launch(words))
            if not runner.check(asked, layout):
                written.append((runner.write(asked, layout), asked, layout))
    assert [verdict["why"] for verdict in parser.verdicts(written) if not verdict["accepted"]] == []
