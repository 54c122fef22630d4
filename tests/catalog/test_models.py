"""The catalogue's models, the index over them, shrinking, and user files good and bad."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.draws import together

from meshwright.catalog import load_model, models, provenance, published_parameters, shrink
from meshwright.catalog.model_sheet import _scan, model_names
from meshwright.catalog.sheets import aliases_of, data_path, read_sheet
from meshwright.catalog.shrinking import lead_and_period
from meshwright.domain.model import MixtureOfExperts, Model
from meshwright.errors import InputError
from meshwright.perf.parameters import total_parameters

CONTRACT = (
    "llama3-8b", "llama3-70b", "llama3.1-405b", "llama2-7b", "llama2-13b", "llama2-70b", "qwen2.5-7b",
    "qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b", "deepseek-v3", "kimi-k2", "gpt-oss-120b", "gpt3-175b",
    "nemotron4-340b", "bloom-176b",
)


def correction_biases(model: Model) -> int:
    """Score-correction biases, which published counts contain and which are buffers here and in transformers."""
    blocks = [model.kinds[index].feed_forward for index in model.pattern]
    return sum(block.num_experts for block in blocks if isinstance(block, MixtureOfExperts) and block.correction_bias)


@together("name", models())
def test_every_model_loads_with_its_source(name: str) -> None:
    model = load_model(name)
    assert model.name == name
    assert len(model.source) > 10
    figures = provenance("model", name)
    assert figures["hidden"].value == model.hidden
    assert all(figure.source for figure in figures.values())
    assert set(model.assumed) <= {*figures, "norms"}


@together("name", [name for name in models() if published_parameters(name)])
def test_published_parameters_are_met_to_the_last_one(name: str) -> None:
    model = load_model(name)
    published = published_parameters(name)
    counted = total_parameters(model)
    assert published in (counted, counted + correction_biases(model))


@pytest.mark.parametrize("name", CONTRACT)
def test_contract_names_are_there(name: str) -> None:
    assert load_model(name).name == name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("meta-llama/Meta-Llama-3-70B", "llama3-70b"),
        ("LLAMA3-8B", "llama3-8b"),
        ("nanotron-llama-8B", "nanotron-llama-8b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("llama3-405b", "llama3.1-405b"),
        ("grok1-314b", "grok-1"),
    ],
)
def test_aliases_in_any_case(alias: str, name: str) -> None:
    assert load_model(alias).name == name


def test_the_scanned_index_equals_a_full_parse() -> None:
    full = {}
    for path in sorted(data_path("models").glob("*.yaml")):
        full |= aliases_of(read_sheet(path).models)
    assert {name: tuple(aliases) for name, _, aliases in _scan()} == full
    assert model_names().names == tuple(sorted(full))
    assert len(full) >= 45


def test_an_unknown_model_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"unknown model 'lama3-70b'; did you mean .*llama3-70b"):
        load_model("lama3-70b")


def test_loading_one_model_is_quick_and_importing_reads_nothing() -> None:
    code = (
        "import time; from meshwright.catalog import load_model, model_sheet as m;"
        "assert m._scan.cache_info().currsize == 0;"
        "load_model('llama3-70b'); t = time.perf_counter(); load_model('qwen3-235b-a22b');"
        "print(time.perf_counter() - t)"
    )
    timings = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout) for _ in range(3)
    ]
    assert min(timings) < 0.1  # 5 ms where nothing else runs


def test_pangu_is_marked_as_assumed() -> None:
    model = load_model("pangu-38b")
    assert "hidden" in model.assumed
    assert total_parameters(model) == pytest.approx(38e9, rel=0.01)
    assert provenance("model", "pangu-38b")["hidden"].source.startswith("assumed")


@pytest.mark.parametrize(
    ("name", "layers", "pattern"),
    [
        ("deepseek-v3", 8, (0, 0, 0, 1, 1, 1, 1, 1)),
        ("deepseek-v3", 2, (0, 1)),
        ("deepseek-v3", 1, (0,)),
        ("gemma3-27b", 7, (0, 0, 0, 0, 0, 1, 0)),
        ("gemma3-27b", 2, (0, 1)),
        ("gemma2-9b", 3, (0, 1, 0)),
        ("llama4-maverick", 4, (0, 1, 0, 2)),
        ("llama3-70b", 4, (0, 0, 0, 0)),
    ],
)
def test_shrinking_keeps_the_order_of_kinds(name: str, layers: int, pattern: tuple[int, ...]) -> None:
    model = load_model(name)
    small = shrink(model, layers)
    assert small.pattern == pattern
    assert small.hidden == model.hidden
    assert set(small.kinds) <= set(model.kinds)
    assert load_model(name, layers=layers) == small


def test_one_layer_of_deepseek_is_a_mixture() -> None:
    assert shrink(load_model("deepseek-v3"), 1).is_moe


def test_shrinking_to_all_layers_changes_nothing() -> None:
    model = load_model("gemma3-12b")
    assert shrink(model, model.num_layers) == model


@pytest.mark.parametrize("layers", [0, -1, 81])
def test_shrinking_beyond_the_model_is_refused(layers: int) -> None:
    with pytest.raises(InputError, match=r"within 1\.\.80"):
        shrink(load_model("llama3-70b"), layers)


@pytest.mark.parametrize(
    ("pattern", "split"),
    [
        ((0, 0, 0, 1, 1, 1), (3, 1)),
        ((0, 1) * 5, (0, 2)),
        ((0,) * 4, (0, 1)),
        ((0, 1, 2), (0, 3)),
        ((0, 1, 1, 1, 0), (0, 4)),
    ],
)
def test_lead_in_and_cycle(pattern: tuple[int, ...], split: tuple[int, int]) -> None:
    assert lead_and_period(pattern) == split


GOOD = {
    "hidden": 64,
    "vocabulary": 1000,
    "layers": 4,
    "source": "my own",
    "attention": {"num_heads": 8, "num_key_value_heads": 2, "head_dim": 8},
    "mlp": {"width": 256},
}


def user_file(folder: Path, **changes: object) -> str:
    block = {key: value for key, value in (GOOD | changes).items() if value is not ...}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"models": {"mine": block}}))
    return str(path)


def faults_of(path: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_model(path)
    return [str(message).partition(": ")[2] for message in caught.value.messages]


def test_a_user_file_loads(tmp_path: Path) -> None:
    model = load_model(user_file(tmp_path))
    assert (model.name, model.num_layers, model.hidden) == ("mine", 4, 64)


def test_a_user_file_may_be_like_a_model_of_the_catalogue(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("models:\n  mine:\n    like: deepseek-v3\n    source: mine\n    pattern: [{mlp: 1}, {experts: 3}]\n")
    assert load_model(str(path)).pattern == (0, 1, 1, 1)


def test_a_user_file_reports_every_fault_with_its_path(tmp_path: Path) -> None:
    path = user_file(
        tmp_path,
        hiden=64,
        hidden=...,
        vocabulary="1000",
        mlp={"width": 2.5, "gatd": True},
        attention={"num_heads": 8, "num_key_value_heads": True, "head_dim": 8, "window_tokens": "1e-5"},
    )
    text = "\n".join(faults_of(path))
    assert "models.mine.hidden: is missing" in text
    assert "models.mine.hiden: is no known key; did you mean hidden" in text
    assert "models.mine.vocabulary: '1000' is not a whole number but text; remove the quotes" in text
    assert "models.mine.mlp.width: 2.5 is not a whole number" in text
    assert "models.mine.mlp.gatd: is no known key; did you mean gated?" in text
    assert "models.mine.attention.num_key_value_heads: true is not a whole number" in text
    assert "YAML reads 1e-5 as text" in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden": 0}, "models.mine.hidden: 0 is not within 1..1000000000"),
        ({"layers": -3}, "models.mine.layers: -3 is not within 1"),
        ({"layers": 10**9}, "more than 10000"),
        ({"hidden": 10**9, "vocabulary": 10**9}, "its sizes multiply to"),
        ({"vocabulary": 10**30}, "is not within 1.."),
        ({"layers": ...}, "give pattern, or layers"),
        ({"mlp": ...}, "give mlp, experts or both"),
        ({"mlp": "wide"}, "keys with values are expected"),
        ({"repeat": ["mlp", "mpl"]}, "unknown kind 'mpl'; did you mean mlp?"),
        ({"repeat": "mlp"}, "'mlp' is not a list"),
        ({"pattern": [{"mlp": 3}]}, "give pattern, or layers"),
        (
            {"kinds": {"a": {}, "b": {"feed_forward": "experts"}}, "repeat": ["a", "b"]},
            "needs experts, which is missing",
        ),
        ({"norm": "rmsnorm"}, "'rmsnorm' is none of rms, layer, layer-no-bias, none"),
        ({"like": "llama3-7b"}, "unknown model 'llama3-7b'; did you mean"),
        ({"like": "mine"}, "the model is like itself"),
        ({"experts": {"num_experts": 8, "experts_per_token": 2, "expert_width": 64}}, "kinds need pattern or repeat"),
        ({"attention": {"num_heads": 8, "num_key_value_heads": 3, "head_dim": 8}}, "does not divide num_heads=8"),
    ],
)
def test_bad_user_files(tmp_path: Path, changes: dict[str, object], expected: str) -> None:
    assert expected in "\n".join(faults_of(user_file(tmp_path, **changes)))


def test_two_models_in_a_user_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump({"models": {"a": GOOD, "b": GOOD}}))
    with pytest.raises(InputError, match="holds 2 models"):
        load_model(str(path))


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(InputError, match="no such file"):
        load_model("./nowhere/config.json")


@pytest.mark.parametrize("name", ["", " ", "x" * 5000, "a\0b", "no-such-model"])
def test_names_that_are_nothing(name: str) -> None:
    with pytest.raises(InputError, match="unknown model"):
        load_model(name)


def test_loading_is_cached() -> None:
    load_model("llama3-8b")
    start = time.perf_counter()
    for _ in range(100):
        load_model("llama3-8b")
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize(
    ("name", "base", "ratio", "scale"),
    [
        ("llama3-70b", 500_000.0, 1.0, None), ("deepseek-v3", 10_000.0, 1.0, 2.5), ("glm-4.5", 1e6, 0.5, 2.5),
        ("glm-4.5-air", 1e6, 0.5, 1.0), ("kimi-k2", 50_000.0, 1.0, 2.827), ("qwen3-coder-480b-a35b", 1e7, 1.0, 1.0),
        ("glm4-9b", None, 0.5, None), ("baichuan-13b", None, 1.0, None),
    ],
)
def test_figures_of_the_forward_pass(name: str, base: float | None, ratio: float, scale: float | None) -> None:
    model = load_model(name)
    assert (model.rotary_base, model.rotary_ratio) == (base, ratio)
    assert (model.experts.routed_scale if model.experts else None) == scale


@pytest.mark.parametrize(("name", "epsilon"), [
    ("qwen2.5-7b", 1e-6), ("qwen3-32b", 1e-6), ("llama3.1-70b", 1e-5), ("mixtral-8x22b", 1e-5), ("deepseek-v3", 1e-6),
    ("gpt3-175b", None),
])
def test_what_norms_add_is_the_model_s_own(name: str, epsilon: float | None) -> None:
    assert load_model(name).norm_epsilon == epsilon


def test_a_rotary_base_has_its_source_and_only_rotary_models_have_one() -> None:
    assert provenance("model", "llama3-8b")["rotary_base"].value == 500_000.0
    for name in models():
        model = load_model(name)
        assert model.position == "rope" or (model.rotary_base, model.rotary_ratio) == (None, 1.0)
    known = sum(load_model(name).rotary_base is not None for name in models() if load_model(name).position == "rope")
    assert known > 70
