"""Where a name comes in: what hides something is refused in one line that shows it, everything else is taken as it is."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import cache

import pytest
import yaml

from meshwright.catalog import clusters, load_cluster, load_model
from meshwright.catalog.calibrations import calibration_table, read_table, table_text
from meshwright.catalog.sheets import data_path
from meshwright.cli import main
from meshwright.errors import InputError
from meshwright.evidence.rows.table import read_table as read_runs
from meshwright.readers.hf_config import model_from_config, read_config
from meshwright.readers.sapp.layer_file import layer_file_from
from meshwright.text import hidden

HIDDEN = ("\n", "\t", "\0", "\x1b[31m", "\x7f", "\x85", "\u200f", "\u202e", "\u2066", "\u2028", "\ud800", "\udcff")
PLAIN = ("Qwen 2.5", "模型", "क\u200d्ष", "$(touch x)", "`x`", "it's \"so\"", "a;b&&c|d", "#1 {{x}}", "-x", "\U0001f600")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
}
LAYERS = [
    {"name": "embedding", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 11},
    {"name": "layer", "type": "BODY", "time": 180, "nb_layer": 96, "memory_parameter": 15, "memory_activation": 8},
    {"name": "output", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 24},
]


def config_name(name, folder):
    return model_from_config({**CONFIG, "_name_or_path": name}, where="config.json").name


def config_type(name, folder):
    model_from_config({**CONFIG, "model_type": name}, where="config.json")
    return name


def config_class(name, folder):
    model_from_config({**CONFIG, "architectures": ["LlamaForCausalLM", name]}, where="config.json")
    return name


def part_of_a_wrapper(name, folder):
    model_from_config({"text_config": {**CONFIG, "_name_or_path": name}}, where="config.json")
    return name


def sheet(folder, **sections):
    path = folder / "sheet.yaml"
    path.write_text(yaml.safe_dump(sections))
    return str(path)


def model_of_a_sheet(name, folder):
    return load_model(sheet(folder, models={name: {"like": "llama3-8b"}})).name


def architecture_of_a_sheet(name, folder):
    return load_model(sheet(folder, models={"mine": {"like": "llama3-8b", "architecture": name}})).architecture


def cluster_of_a_sheet(name, folder):
    return load_cluster(sheet(folder, clusters={name: {"like": clusters()[0]}})).name


@cache
def device_block():
    block = yaml.safe_load((data_path("devices.yaml")).read_text())["devices"]["h100-sxm"]
    return {key: value for key, value in block.items() if key != "aliases"}


def device_of_a_sheet(name, folder):
    path = sheet(folder, devices={name: device_block()}, clusters={"c": {"like": clusters()[0], "device": name}})
    return load_cluster(path).device.name


def layer_file(name, folder):
    return layer_file_from({"name": name, "layers_description": LAYERS}, where="l.json").name


def layer_of_a_file(name, folder):
    entries = [LAYERS[0], {**LAYERS[1], "name": name}, LAYERS[2]]
    return layer_file_from({"layers_description": entries}, where="l.json").bodies[0].name


def calibration(name, folder):
    path = folder / "c.json"
    path.write_text(table_text(replace(calibration_table("shipped"), name=name)))
    return read_table(path).name


DOORS = (config_name, config_type, config_class, part_of_a_wrapper, model_of_a_sheet, architecture_of_a_sheet, cluster_of_a_sheet,
         device_of_a_sheet, layer_file, layer_of_a_file, calibration)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_name_that_hides_something_is_refused_in_one_visible_line(door, tmp_path):
    for mark in HIDDEN:
        with pytest.raises(InputError) as refused:
            door(f"a{mark}b", tmp_path)
        (message,) = refused.value.messages
        line = str(message)
        assert not hidden(line) and ": " in line, line
        refused_by_yaml = message.id == "yaml.malformed" and mark in "\ud800\udcff"
        assert refused_by_yaml or (message.id == "name.hidden" and hidden(mark) in line), line


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_any_other_name_is_taken_as_it_is(door, tmp_path):
    for name in PLAIN:
        assert door(name, tmp_path) == name


def test_a_folder_that_becomes_a_name(tmp_path):
    for name in ("a\nb", "a\x1b[31m"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG))
        with pytest.raises(InputError, match="the name of its folder"):
            read_config(tmp_path / name / "config.json")


def test_rows_of_a_csv(tmp_path):
    """A row with such a name is left out, and the others are read."""
    columns = ("id", "framework", "model", "gpu", "n_gpus", "seq", "gbs", "tp", "pp", "source", "notes")
    good = ("r-0", "megatron", "llama3-8b", "h100-sxm", "8", "4096", "64", "1", "1", "lab 模型", "=1")
    marks = [mark for mark in HIDDEN if mark not in "\0\ud800\udcff"]
    rows = [good]
    for place, mark in enumerate(marks):
        row = [f"r-{place + 1}", *good[1:]]
        column = (1, 2, 3, 9, 10)[place % 5]
        row[column] = f'"a{mark}b"'
        rows.append(tuple(row))
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(",".join(row) for row in (columns, *rows)) + "\n", newline="")
    table = read_runs(path)
    assert [row.id for row in table.rows] == ["r-0"]
    assert {each.kind for each in table.skipped} == {"characters that cannot be seen"}
    assert len(table.skipped) == len(marks) and not any(hidden(each.reason) for each in table.skipped)


ARGUMENTS = (
    ("plan", "MODEL"), ("plan", "llama3-8b", "--save", "DIR"), ("plan", "llama3-8b", "--cluster", "NAME"),
    ("calibrate", "--name", "NAME", "--runs", "FILE"), ("validate", "FILE"), ("check", "FILE", "--from", "megatron"),
    ("balance", "FILE"), ("export", "FILE", "--to", "megatron", "--out", "x"), ("VERB",), ("plan", "--OPTION"),
    ("estimate", "llama3-8b", "--layout", "LAYOUT"), ("plan", "llama3-8b", "--request", "FILE"),
)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_an_argument_that_hides_something(arguments, capfd):
    """Undecodable bytes of a command line come as surrogates; status 70 is for bugs."""
    for mark in ("\n", "\x1b[31m", "\u202e", os.fsdecode(b"\xff"))["--layout" in arguments :]:  # lines may part words of a layout
        words = [f"{word}{mark}x" if word.lstrip("-").isupper() else word for word in arguments]
        assert main(words) == 2
        err = capfd.readouterr().err
        assert err.startswith("error: ") and not hidden(err.replace("\n", "")), err
        assert hidden(mark) in err and err.count("\n") == err.count("error: ")


def test_a_path_that_would_be_written_into_a_plan(tmp_path, monkeypatch, capfd):
    """The folder that one stands in is part of it."""
    (tmp_path / "a\nb").mkdir()
    monkeypatch.chdir(tmp_path / "a\nb")
    (tmp_path / "a\nb" / "c.json").write_text(json.dumps(CONFIG))
    batch = ("--global-batch", "8", "--sequence", "512", "--layout", "dp8")
    status = main(["estimate", "c.json", "--device", "h100-sxm", "--nodes", "1", *batch])
    err = capfd.readouterr().err
    assert status == 2 and err.startswith("error: model: ") and r"a\nb" in err
