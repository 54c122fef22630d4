"""What others got: the index of cells, and the runs nearest to a case."""

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for, devices, implementation, implementations, load_cluster
from meshwright.catalog import device as device_named
from meshwright.errors import InputError, fault
from meshwright.evidence.rows.attempts import attempts, build, cells_of, corpus, data_path, text_of
from meshwright.evidence.rows.conventions import conventions
from meshwright.evidence.rows.near import NEAR, Wanted, closest, near, nearest, of_case, of_model, on_device, wanted_model
from meshwright.evidence.rows.published import published


def case(model="llama3-8b", device="h100-sxm", nodes=1, batch=128, sequence=8192, **more):
    cluster = cluster_for(device, nodes=nodes)
    return make_case(model, cluster, global_batch_sequences=batch, sequence_tokens=sequence, **more)


def on(name, device="h100-sxm", **more):
    return replace(on_device(wanted_model(name), device_named(device)), precision="bf16", task="pretrain", **more)


@pytest.fixture(scope="module")
def rows():
    return corpus()


def test_the_index_is_current(rows):
    current = data_path("fastest_runs.json").read_text(encoding="utf-8")
    assert text_of(build(rows)) == current, "run scripts/refresh-readme, or python -m meshwright.evidence.rows.attempts"


def test_the_index_counts_every_row_without_a_flag(rows):
    assert sum(cell.ran + cell.failed for cell in attempts()) == sum(not row.flag for row in rows)
    assert len({cell.best.id for cell in attempts()}) == len(attempts())


def test_the_best_of_a_cell_is_its_fastest(rows):
    best = next(cell for cell in attempts() if cell.best.id == "playbook-1141").best
    same = [row for row in rows if row.model == "nanotron-llama-8B" and row.num_devices == 16 and row.status == "ok"]
    assert best.step_s == min(row.measured.step_s for row in same if not row.flag)


@pytest.mark.parametrize("name", ["8B", "nanotron-llama-8B"])
def test_the_playbooks_8b_on_one_node(name):
    first = nearest(on(name, devices=8), 1)[0]
    run = first.cell.best
    assert run.id == "playbook-1128"
    assert (run.label, run.num_microbatches, run.data_parallel) == ("tp1 pp4 dp2 mb1 zero1", 128, 2)
    assert run.memory_bytes == round(63.1 * 2**30)
    assert (first.cell.ran, first.cell.failed) == (13, 48)
    assert first.distance == 0
    assert not first.differs


@pytest.mark.parametrize(("name", "parameters"), [("8B", 8e9), ("1.5b", 1.5e9), ("125M", 125e6), ("1T", 1e12)])
def test_a_size_alone(name, parameters):
    assert wanted_model(name) == Wanted(parameters=parameters)


def test_a_size_is_met_by_a_name_that_says_it():
    assert nearest(wanted_model("125M"), 1)[0].cell.best.model == "mpt-125m"
    with pytest.raises(InputError):
        wanted_model("0B")


def test_mfu_is_told_by_our_convention_not_the_sources(rows):
    row = next(row for row in rows if row.id == "playbook-1128")
    causal = published(row).mfu_ratio
    assert row.measured.mfu_ratio == pytest.approx(0.452)  # 6 N + the whole attention square
    assert causal == pytest.approx(0.4032, abs=1e-3)
    alike = make_case(
        "nanotron-llama-8b", load_cluster("p5", num_devices=8), global_batch_sequences=256, sequence_tokens=4096
    )
    from meshwright.estimate import model_flops

    assert causal == pytest.approx(model_flops(alike) / 17.4693 / 8 / 989.4e12, rel=2e-3)


def test_the_other_8b_is_near_but_not_the_same():
    found = nearest(on("llama3-8b", devices=8, sequence_tokens=4096, global_batch_sequences=256), 2)
    assert [each.cell.best.model for each in found] == ["nanotron-llama-8B", "llama3-8b"]
    assert {part.what for part in found[0].differs} == {"model", "parameters"}
    assert {part.what for part in found[1].differs} == {"sequence_tokens"}
    assert found[1].distance == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "distance"),
    [
        ({"devices": 32}, 1.0),
        ({"sequence_tokens": 8192}, 0.5 + 0.25),
        ({"global_batch_sequences": 1024}, 0.5),
        ({"task": "sft"}, 1.5),
        ({"precision": "fp16"}, 0.25),
        ({"precision": "fp8-mx"}, 0.75),
        ({"precision": "nvfp4"}, 1.5),
        ({"family": "megatron"}, 0.5),
        ({"device": "h200"}, 0.5),
        ({"device": "mi300x", "device_family": "cdna3"}, 2.5),
        ({"is_moe": True, "model": "x"}, 3.25),
        ({"parameters": 2 * 8.8584e9, "model": "x", "active_parameters": 2 * 8.8584e9}, 1.25),
    ],
)
def test_each_part_of_the_distance(change, distance):
    cell = next(cell for cell in attempts() if cell.best.id == "playbook-1128")
    run = cell.best
    same = Wanted(
        model=run.model, parameters=run.parameters, active_parameters=run.active_parameters, shape=(1, 1), is_moe=False,
        device=run.device, device_family=run.device_family, devices=8, sequence_tokens=4096, global_batch_sequences=256,
        precision="bf16", task="pretrain", family="nanotron",
    )
    assert near(same, cell).distance == 0
    found = near(replace(same, **change), cell)
    assert found.distance == pytest.approx(distance, abs=1e-4)
    assert sum(part.distance for part in found.differs) == pytest.approx(found.distance)


def test_what_is_not_asked_for_adds_nothing():
    assert {each.distance for each in nearest(Wanted())} == {0}


def test_of_equally_near_runs_the_one_of_the_name_comes_first():
    assert nearest(on("llama3-70b", devices=64), 1)[0].cell.best.model == "llama3-70b"


def test_closest_has_a_speed_and_is_near():
    found = closest(case("nanotron-llama-80b", nodes=4, batch=256, sequence=4096))
    assert found is not None
    assert found.cell.best.tokens_per_s_per_device
    assert found.distance <= NEAR


def test_nothing_is_near_an_unknown_device():
    assert closest(case(device="mi300x")) is None
    assert closest(case("nanotron-llama-1b", device="v100-32g", precision="fp16")) is None


def test_the_framework_of_the_case_breaks_the_tie():
    ours = closest(case("nanotron-llama-8b", batch=256, sequence=4096, framework="nanotron"))
    assert ours is not None
    assert ours.distance == 0


def test_of_case_and_of_model_agree():
    given = case()
    wanted = of_case(given)
    assert replace(of_model(given.model), device="h100-sxm", device_family="hopper") == replace(
        wanted, devices=None, sequence_tokens=None, global_batch_sequences=None, precision=None, task=None, family=None
    )


def test_a_model_that_only_the_corpus_knows():
    assert wanted_model("nemotron-h-56b").model == "nemotron-h-56b"
    with pytest.raises(InputError, match="neither does the corpus"):
        wanted_model("lama3-8b")


def test_every_row_can_be_told(rows):
    for row in rows[::7]:
        run = published(row)
        assert run.device in devices() if run.device_family else run.device == row.device
        if row.status == "failed" or row.flag:
            continue
        assert run.mfu_ratio is None or 0 < run.mfu_ratio < 0.85, run.id
        if row.measured.tokens_per_s_per_device:
            assert run.tokens_per_s_per_device == pytest.approx(row.measured.tokens_per_s_per_device, rel=0.03), run.id


def test_a_broken_catalogue_is_no_blank_index(rows, monkeypatch):
    def broken(row):
        raise fault("sheet.mapping", "constants.yaml is broken")

    monkeypatch.setattr("meshwright.evidence.rows.reading.run", broken)
    with pytest.raises(InputError, match="broken"):
        published(rows[0])


def test_a_row_of_a_device_without_a_sheet_is_told_by_its_own_spelling(rows):
    run = published(replace(rows[0], device="vr999"))
    assert (run.device, run.device_family, run.mfu_ratio) == ("vr999", "", None)


def test_the_index_is_not_gutted():
    speeds = [cell.best for cell in attempts() if cell.best.tokens_per_s_per_device]
    assert sum(run.mfu_ratio is not None for run in speeds) > 0.85 * len(speeds)


def test_families_are_those_of_implementations_or_their_own():
    ours = {implementation(name).family for name in implementations()}
    told = {rule.then["family"] for rule in conventions().rules if "family" in rule.then}
    assert told - ours == {"mindformers"}


def test_a_row_of_the_corpus_is_shown_as_its_source_filled_it() -> None:
    for row in (corpus()[0], corpus()[500], corpus()[-1]):
        cells = cells_of(row.id)
        assert cells["id"] == row.id
        assert (cells["model"], cells["n_gpus"]) == (row.word("model"), row.word("n_gpus"))
