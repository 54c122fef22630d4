"""A cluster file goes round: samples, text, cluster, estimate. Files that no profile writes are refused in one line each."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.engine.profile.synthetic import cpu_world, machine, samples

import meshwright
from meshwright.catalog import calibration, load_cluster, load_model, shrink
from meshwright.cli import main
from meshwright.domain.label import parse_layout
from meshwright.engine.profile.clusterfile import cluster_text
from meshwright.engine.profile.fit import fit
from meshwright.errors import InputError
from meshwright.estimate.single import estimate

if TYPE_CHECKING:
    from collections.abc import Callable

WORLD = cpu_world()
SAMPLES = samples(WORLD, noise=0.05, seed=1)
TEXT = cluster_text(SAMPLES, WORLD.machine, name="here")
ESTIMATE = ("llama3-8b", "--layers", "1", "--global-batch", "2", "--sequence", "256", "--calibration", "none", "--implementation",
            "reference", "--layout", "tp2 mb1 sp")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "here.yaml"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize("name", ["2026-11-21", "1e5", "on", "null"])
def test_a_name_that_yaml_reads_as_something_else_stays_a_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "named.yaml").write_text(cluster_text(SAMPLES[:1], WORLD.machine, name=name))
    assert load_cluster(str(tmp_path / "named.yaml")).name == name


def test_the_cluster_of_the_file_is_the_cluster_of_the_fit(file: str) -> None:
    found, read = fit(SAMPLES, WORLD.machine, name="here").cluster, load_cluster(file)
    assert found.measured is not None
    assert read.measured is not None
    assert read.measured.label == "here@2026-11-21"
    for name in ("constants", "pass_speeds"):
        assert getattr(read.measured, name) == pytest.approx(getattr(found.measured, name), rel=1e-5)
    assert read.measured.tiles == found.measured.tiles
    for name in ("products", "cores", "scale_up", "network"):
        ours, theirs = getattr(found.measured, name), getattr(read.measured, name)
        assert [each.ratio for each in theirs] == pytest.approx([each.ratio for each in ours], rel=1e-4), name
    assert read.device.peak_flops_per_s == pytest.approx(found.device.peak_flops_per_s, rel=1e-5)
    assert (read.num_devices, read.devices_per_node, read.scale_up_devices) == (2, 2, 2)
    assert read.device.synchronous
    assert read.device.memory_bytes == pytest.approx(12 * 2**30, rel=1e-5)
    for tier in ("scale_up", "network"):
        assert getattr(read, tier).bytes_per_s == pytest.approx(getattr(found, tier).bytes_per_s, rel=1e-5)
        assert getattr(read, tier).latency_s == pytest.approx(getattr(found, tier).latency_s, rel=1e-5)


def test_an_estimate_through_the_file_is_that_of_the_fit(file: str) -> None:
    case = meshwright.make_case(
        shrink(load_model("llama3-8b"), 1), file, global_batch_sequences=2, sequence_tokens=256,
        implementation="reference", calibration="none",
    )
    cluster = fit(SAMPLES, WORLD.machine, name="here").cluster
    again = replace(case, cluster=cluster, calibration=calibration("none", cluster))
    layout = parse_layout("tp2 mb1 sp", num_devices=2, global_batch_sequences=2, devices_per_node=2, model=case.model)
    one, two = estimate(case, layout), estimate(again, layout)
    assert one.step_s == pytest.approx(two.step_s, rel=1e-4)
    assert one.calibrated
    assert one.calibration == two.calibration == "none@0+here@2026-11-21"


def test_measured_constants_stand_above_a_fitted_calibration(file: str) -> None:
    cluster = load_cluster(file)
    assert cluster.measured is not None
    shipped = calibration("shipped", cluster, framework="torch")
    for name, value in cluster.measured.constants.items():
        assert getattr(shipped.constants, name) == value, name
    unmeasured = calibration("shipped", replace(cluster, measured=None), framework="torch")
    assert shipped.constants.straggler_slope == unmeasured.constants.straggler_slope
    assert shipped.label == f"{unmeasured.label}+here@2026-11-21"
    assert shipped.uncertainty == unmeasured.uncertainty
    by_name = {move.name: move for move in shipped.moved}
    assert by_name["gemm_ratio"].source.startswith("measured: ")
    assert by_name["pass_speeds.norm"].value == cluster.measured.pass_speeds["norm"]
    assert set(by_name["straggler_slope"].offsets) <= {"all", "family", "cluster", "framework"}


def test_explain_says_what_was_measured_and_from_what(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *ESTIMATE, "--cluster", file, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    constants = {each["name"]: each for each in view["constants"]}
    assert constants["gemm_ratio"]["grade"] == "measured"
    assert "21 products in bf16" in constants["gemm_ratio"]["source"]
    assert constants["straggler_slope"]["grade"] == "analytic"
    assert main(["explain", *ESTIMATE, "--cluster", file, "--all"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"gemm_setup_k .* measured", shown)


def test_the_catalogue_shows_a_file_with_its_sources(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "clusters", file]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("measured.constants.gemm_ratio", "measured.passes.norm", "device.peak.bf16", "20 timed"):
        assert words in shown, words
    assert len(shown) < 20000, "samples are counted, not listed"


def test_the_text_is_for_people_and_says_what_was_not_measured() -> None:
    assert TEXT.startswith("# A cluster as `meshwright profile` measured it.")
    assert 'source: "not measured; ' in TEXT
    assert max(map(len, TEXT.splitlines())) < 300
    document = yaml.safe_load(TEXT)
    assert document["measured"]["here"]["fit"]["product"]["samples"] == 28
    assert document["measured"]["here"]["samples"] == len(SAMPLES)


def test_whatever_a_system_calls_its_processor_is_text() -> None:
    odd = machine(name='Evil: {"x"} # \n- [1]\x1b[31m' + "y" * 900, host="a: b")
    document = yaml.safe_load(cluster_text(SAMPLES, odd, name="here"))
    assert document["measured"]["here"]["machine"].startswith('Evil: {"x"} # ')
    assert len(document["measured"]["here"]["machine"]) <= 400


@pytest.mark.parametrize("name", ["", "Here", "a b", "a@b", "a+b", "../up", "x" * 65, "-a"])
def test_names_that_no_label_could_hold_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no name"):
        cluster_text(SAMPLES, WORLD.machine, name=name)


def _figure(value: Any, unit: str = "ratio", source: Any = "me") -> dict[str, Any]:
    return {"value": value, "unit": unit, "source": source}


def _put(path: str, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *parents, last = path.split("/")
        for parent in parents:
            document = document[int(parent) if isinstance(document, list) else parent]
        document[int(last) if isinstance(document, list) else last] = value

    return change


HERE = "measured/here"
BAD: dict[str, tuple[Callable[[Any], None], str]] = {
    "a constant of another name": (_put(f"{HERE}/constants/gem_ratio", _figure(1)), r"gem_ratio: is no constant.*gemm_ratio"),
    "tiles as a constant": (_put(f"{HERE}/constants/tiles", _figure(1)), "tiles: is no constant"),
    "a negative ratio": (_put(f"{HERE}/constants/gemm_ratio", _figure(-1)), "must be above 0"),
    "nothing": (_put(f"{HERE}/constants/gemm_ratio", _figure(0)), "must be above 0"),
    "no number": (_put(f"{HERE}/constants/gemm_ratio", _figure(float("nan"))), "gemm_ratio.value: nan is not finite"),
    "endless": (_put(f"{HERE}/constants/kernel_gap_s", _figure(float("inf"), "s")), "not finite"),
    "hours": (_put(f"{HERE}/constants/kernel_gap_s", _figure(1e6, "s")), r"not within 0..1000"),
    "more overlap than there is": (_put(f"{HERE}/constants/overlap_ratio", _figure(1.5)), "not within 0..1"),
    "a bare number": (_put(f"{HERE}/constants/gemm_ratio", 0.5), "is bare"),
    "another unit": (_put(f"{HERE}/constants/kernel_gap_s", _figure(1, "ratio")), "unit 'ratio' is none of"),
    "no source": (_put(f"{HERE}/constants/gemm_ratio", _figure(1, "ratio", "")), "source is empty"),
    "a speed of a kind beyond sense": (_put(f"{HERE}/passes/norm", _figure(1e9)), "passes.norm: 1e\\+09 is not within"),
    "a kind in colours": (_put(f"{HERE}/passes/\x1b[31m", _figure(1)), "a control character|is no kind of pass"),
    "a source in colours": (_put(f"{HERE}/constants/gemm_ratio", _figure(1, "ratio", "a\x1b[31mb")), "a control character"),
    "an unknown section": (
        _put("measurements", {}),
        "measurements: is no known section; did you mean measured|is no known section",
    ),
    "an unknown key": (_put(f"{HERE}/colour", "red"), "colour: is no known key"),
    "another cluster": (_put("measured/there", {}), "measured.there: is no cluster of this file"),
    "a list of nothing": (_put(HERE, []), "keys with values are expected"),
    "a strange date": (_put(f"{HERE}/date", "2026@11+21"), "is no date"),
    "a date in lines": (_put(f"{HERE}/date", "2026\n11"), "a line break"),
    "colours in a name": (_put(f"{HERE}/machine", "a\x1b[31mb"), r"machine: .* holds a control character"),
    "one rank in a group": (_put(f"{HERE}/scale_up/0/ranks", 1), "not within 2"),
    "a fast collective": (_put(f"{HERE}/scale_up/0/seconds", 1e-12), "not within"),
    "a wild ratio": (_put(f"{HERE}/scale_up/0/formula_s", 5e-12), "times the formula"),
    "an unknown operation": (_put(f"{HERE}/scale_up/0/operation", "all-sum"), "'all-sum' is none of"),
    "half a byte": (_put(f"{HERE}/scale_up/0/payload_bytes", 0.5), "is not a whole number"),
    "a huge message": (_put(f"{HERE}/scale_up/0/payload_bytes", 10**30), "is not within"),
    "no goodness": (_put(f"{HERE}/fit", 3), "keys with values are expected"),
    "flat tiles": (_put(f"{HERE}/tiles", [{"rows": 0, "columns": 1, "ratio": 1.0}]), r"tiles\[0\].rows: 0 is not within"),
    "a number of ranks": (_put(f"{HERE}/ranks", 0), "ranks: 0 is not within"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_no_profile_writes_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = BAD[name]
    document = yaml.safe_load(TEXT)
    change(document)
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match=words) as caught:
        load_cluster(str(path))
    assert all("\n" not in str(message) and "\x1b" not in str(message) for message in caught.value.messages)
    assert main(["estimate", *ESTIMATE, "--cluster", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "adding-a-device.md").read_text()
    example = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "measured:" in block)
    document = yaml.safe_load(TEXT)
    document["measured"]["here"] = yaml.safe_load(example)["measured"]["my-cpu"]
    (tmp_path / "page.yaml").write_text(yaml.safe_dump(document))
    found = load_cluster(str(tmp_path / "page.yaml")).measured
    assert found is not None
    assert found.label == "here@2026-11-21"
    assert (len(found.products), len(found.scale_up), found.pass_speeds) == (1, 1, {"norm": 1.2})


def test_many_faults_are_said_at_once(tmp_path: Path) -> None:
    document = yaml.safe_load(TEXT)
    for name in ("a negative ratio", "hours", "a strange date", "one rank in a group"):
        BAD[name][0](document)
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(InputError) as caught:
        load_cluster(str(tmp_path / "bad.yaml"))
    assert len(caught.value.messages) == 4


def test_more_samples_than_an_estimate_can_bear_are_refused(tmp_path: Path) -> None:
    document = yaml.safe_load(TEXT)
    section = document["measured"]["here"]["scale_up"]
    document["measured"]["here"]["scale_up"] = [dict(section[0]) for _ in range(2001)]
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match="has 2001 entries, at most 2000"):
        load_cluster(str(tmp_path / "bad.yaml"))
