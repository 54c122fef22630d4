"""Files whose sequences are packs of samples: ``check`` prices what ``plan --lengths`` planned, said in the same words."""

import pytest

import meshwright as mw
from meshwright.api.launch_files import launch_files
from meshwright.outputs import in_folder, write

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")

CASE = {"model": "qwen3-8b", "device": "h100-sxm", "nodes": 2, "task": "sft", "global_batch": 128}
LAYOUTS = {"bridge": "tp2 dp8 mb1 sp zero1", "chatlearn": "tp2 dp8 mb1 sp zero1", "accelerate": "dp16 mb1 zero3 recompute=full",
           "verl-megatron": "tp2 cp2 dp4 mb1 sp zero1", "verl-fsdp": "cp2 dp8 mb1 zero3 recompute=full context=ulysses"}

AS_IT_RUNS = {"chatlearn", "verl-megatron", "verl-fsdp"}
"""Frameworks whose files count samples."""


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request, tmp_path_factory):
    """A framework, the options of a case of packed samples, its estimate and the folder of its files."""
    folder = tmp_path_factory.mktemp(request.param)
    lengths = folder / "lengths.txt"
    lengths.write_text("\n".join(str(100 + 37 * number % 8000) for number in range(300)) + "\n8192\n")
    case = {**CASE, "lengths": str(lengths), "packs": 80}
    answer = mw.estimate(mw.EstimateRequest(**case, framework=request.param, layout=LAYOUTS[request.param]))
    write(in_folder(folder / "out", launch_files(answer.given, answer.estimate.layout, answer.estimate)), force=False)
    return request.param, case, answer.estimate, folder / "out"


def checked(name, folder, case):
    return mw.check(mw.CheckRequest(files=[str(folder)], from_=name, **case)).checked


def test_the_words_of_the_plan_give_the_figures_of_the_plan(run):
    name, case, planned, folder = run
    found = checked(name, folder, case)
    assert not [each for each in found.findings if each.severity == "error"]
    assert found.estimate is not None, found.skipped
    assert found.estimate.step_s == pytest.approx(planned.step_s, rel=1e-9)
    assert found.estimate.memory_reserved_bytes == pytest.approx(planned.memory_reserved_bytes, rel=1e-9)


def test_samples_without_lengths_are_said_to_be_taken_as_full_sequences(run):
    """A step of packed samples, planned with 14.4 s, was predicted with 62.0 s, and nothing said why."""
    name, case, _, folder = run
    bare = {key: value for key, value in case.items() if key not in ("lengths", "packs")}
    said = [{each.message.id for each in checked(name, folder, given).findings} for given in (bare, case)]
    assert ["import.whole-samples" in ids for ids in said] == [name in AS_IT_RUNS, False]
    if name == "chatlearn":
        assert "on packed samples" in (folder / "README.md").read_text()


def test_other_packs_than_those_of_the_files_are_a_contradiction(run):
    name, case, _, folder = run
    if name != "bridge":
        pytest.skip("its files do not count packs")
    found = checked(name, folder, case | {"packs": 96})
    assert "check.contradiction" in {each.message.id for each in found.findings}


def test_a_patch_of_the_framework_is_none_of_the_files_of_the_run(run):
    name, case, planned, folder = run
    patch = folder / "changes.patch"
    patch.write_text("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n")
    files = [str(path) for path in sorted(folder.iterdir())]
    found = mw.check(mw.CheckRequest(files=files, from_=name, **case)).checked
    beside = next(each.message.words for each in found.findings if each.message.id == "import.beside")
    assert "changes.patch" in beside and found.estimate.step_s == pytest.approx(planned.step_s, rel=1e-9)


PACKS = [(8192, 160, 1), (8192, 160, 2), (16384, 48, 1), (16384, 48, 3), (10240, 128, 2), (12288, 128, 4), (24576, 32, 1)]
"""Tokens of a pack, packs of a step, packs of a micro-batch: 8,192 is the longest sample, and some are no multiple of it."""


@pytest.fixture(scope="module", params=PACKS, ids=str)
def chatlearn_run(request, tmp_path_factory):
    """ChatLearn's files say the tokens of a micro-batch, whatever it is made of; two chunks and eight micro-batches at least."""
    tokens, packs, size = request.param
    folder = tmp_path_factory.mktemp("packs")
    lengths = folder / "lengths.txt"
    lengths.write_text("\n".join(str(100 + 37 * number % 8000) for number in range(300)) + "\n8192\n")
    case = {**CASE, "layers": 32, "global_batch": 160, "lengths": str(lengths), "max_tokens": tokens, "packs": packs}
    label = f"tp2 pp4 vp2 dp2 mb{size} sp zero1 recompute=full"
    answer = mw.estimate(mw.EstimateRequest(**case, framework="chatlearn", layout=label))
    write(in_folder(folder / "out", launch_files(answer.given, answer.estimate.layout, answer.estimate)), force=False)
    return case, answer.estimate, folder / "out"


def test_a_pack_is_what_the_words_of_the_plan_say(chatlearn_run):
    """One pack of 16,384 tokens was two of 8,192, so that as many packs made half as many micro-batches: less than pp."""
    case, planned, folder = chatlearn_run
    found = checked("chatlearn", folder, case)
    assert not [each for each in found.findings if each.severity == "error"]
    assert found.estimate.layout == planned.layout
    assert found.estimate.step_s == pytest.approx(planned.step_s, rel=1e-9)
    assert found.estimate.memory_reserved_bytes == pytest.approx(planned.memory_reserved_bytes, rel=1e-9)


def test_the_number_of_packs_tells_what_a_pack_is(chatlearn_run):
    """Where nobody says what a pack holds: a whole part of a micro-batch in which so many hold the samples."""
    case, planned, folder = chatlearn_run
    if case["max_tokens"] % 8192:
        pytest.skip("a cap that is no multiple of the longest sample")
    found = checked("chatlearn", folder, {name: value for name, value in case.items() if name != "max_tokens"})
    assert found.estimate.layout == planned.layout
    assert found.estimate.step_s == pytest.approx(planned.step_s, rel=1e-9)


def test_too_few_packs_are_the_files_and_no_fault_of_another_batch(chatlearn_run):
    case, _, folder = chatlearn_run
    bare = {name: value for name, value in case.items() if name not in ("max_tokens", "global_batch")}
    said = [str(each.message) for each in checked("chatlearn", folder, bare | {"packs": 3}).findings]
    assert any("3 packs of at most 8,192 tokens do not hold 160 samples" in each for each in said)


def test_import_saves_the_packs_of_the_plan(chatlearn_run, tmp_path):
    case, planned, folder = chatlearn_run
    mw.import_(mw.ImportRequest(files=[str(folder)], from_="chatlearn", save=str(tmp_path / "plan.yaml"), **case))
    again = mw.estimate(mw.EstimateRequest(request=str(tmp_path / "plan.yaml")))
    assert again.estimate.step_s == pytest.approx(planned.step_s, rel=1e-9)
