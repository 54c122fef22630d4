"""Variables that cost speed, value by value; figures of files against those of a model, by hand."""

from __future__ import annotations

from types import SimpleNamespace as Some

import pytest

from meshwright.catalog import load_model
from meshwright.check import figures
from meshwright.check.environment import environment
from meshwright.frameworks.variables import habits

VALUES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "NCCL_DEBUG": (("INFO", "trace", "Info"), ("WARN", "VERSION", "")),
    "NCCL_IB_DISABLE": (("1", " true ", "ON", "yes"), ("0", "", "off", "2")),
    "NCCL_IB_HCA": (("mlx5", "mlx", "mlx5:1", "mlx5_0,mlx5"), ("mlx5_0", "=mlx5", "^mlx5", "mlx5_0:1,mlx5_1", "MLX5")),
    "NCCL_SOCKET_IFNAME": (("lo", "lo,docker0", " virbr0 "), ("eth0", "lo,eth0", "", " ")),
    "HCCL_SOCKET_IFNAME": (("lo",), ("eth0",)),
    "GLOO_SOCKET_IFNAME": (("docker0",), ("bond0",)),
    "NCCL_P2P_DISABLE": (("1",), ("0",)),
    "NCCL_SHM_DISABLE": (("1",), ("0",)),
    "NCCL_PROTO": (("Simple", " SIMPLE"), ("LL128", "^LL", "")),
    "CUDA_LAUNCH_BLOCKING": (("1",), ("0",)),
    "TORCH_DISTRIBUTED_DEBUG": (("DETAIL", "detail"), ("INFO", "OFF")),
    "NVTE_DEBUG": (("1",), ("0",)),
    "ASCEND_LAUNCH_BLOCKING": (("1",), ("0",)),
    "ASCEND_GLOBAL_LOG_LEVEL": (("0", " 1 "), ("2", "3", "01")),
    "ASCEND_SLOG_PRINT_TO_STDOUT": (("1",), ("0",)),
    **{each.variable: ((each.triggers,), (each.passes,)) for each in habits()[9:] if each.variable.startswith((
        "NCCL_ALGO", "NCCL_NET", "TORCH_NCCL", "NCCL_BLOCKING", "NVTE_ALLOW", "NVTE_FLASH", "PYTORCH_", "CUBLAS", "TORCHDYNAMO",
        "TORCH_COMPILE", "HCCL_DET", "LCCL", "HCCL_ENTRY", "MS_"))},
}
ACROSS = {"NCCL_NET_GDR_LEVEL", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}
ADVICE = {"NCCL_ALGO", "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "NVTE_FLASH_ATTN", "CUBLAS_WORKSPACE_CONFIG", "TORCH_COMPILE_DEBUG",
          "PYTORCH_CUDA_ALLOC_CONF",
          "NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_SHM_DISABLE", "NCCL_PROTO", "NVTE_DEBUG", "ASCEND_SLOG_PRINT_TO_STDOUT"}


def found(nodes=2, case=None, **variables):
    values = {name: Some(value=value, place=f"train.sh:{place}") for place, (name, value) in enumerate(variables.items(), start=1)}
    return list(environment(Some(reading=Some(source=Some(environment=values, nodes=nodes)), case=case)))


def test_every_habit_has_values_here():
    assert {each.variable for each in habits()} == set(VALUES)
    assert {each.variable for each in habits() if each.severity == "advice"} == ADVICE
    assert {each.variable for each in habits() if each.across_nodes} == ACROSS


@pytest.mark.parametrize("name", VALUES)
def test_values_that_should_not_stay_and_those_that_may(name):
    bad, good = VALUES[name]
    for value in bad:
        (each,) = found(**{name: value})
        assert (each.message.id, each.value, each.message.path) == ("environment.habit", value, "train.sh:1")
        assert each.severity == ("advice" if name in ADVICE else "warning")
        assert len(found(1, **{name: value})) == len(found(None, **{name: value})) == (name not in ACROSS)
    for value in (*good, 3, None):
        assert found(**{name: value}) == []
    case = Some(cluster=Some(num_nodes=4))
    assert len(found(None, case, **{name: bad[0]})) == 1
    assert len(found(1, case, **{name: bad[0]})) == (name not in ACROSS)


def test_an_allocator_is_told_one_thing():
    old, new = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    assert found(**{old: "a"}) == found(**{new: "b"}) == found(**{old: "a", new: "a"}) == []
    (each,) = found(**{old: "a", new: "b"})
    assert (each.message.id, each.message.path, each.value, each.expected) == ("environment.allocator", "train.sh:2", "a", "b")


@pytest.mark.parametrize(
    ("name", "said", "known", "tp", "alike"),
    [
        ("hidden", 8, 8, 1, True),
        ("hidden", 8, 9, 1, False),
        ("hidden", 128, 100, 1, False),
        ("experts", None, 0, 1, True),
        ("experts", 0, None, 1, True),
        ("experts", 8, 0, 1, False),
        ("experts", 0, 8, 1, False),
        ("vocabulary", 32000, 32000, 8, True),
        ("vocabulary", 32256, 32000, 4, True),
        ("vocabulary", 32255, 32000, 4, False),
        ("vocabulary", 50304, 50257, 1, True),
        ("vocabulary", 51200, 50257, 8, True),
        ("vocabulary", 51200, 50257, 1, False),
        ("vocabulary", 50264, 50257, 1, True),
        ("vocabulary", 50265, 50257, 1, False),
        ("vocabulary", "50304", 50257, 1, False),
        ("vocabulary", 50304, None, 1, False),
    ],
)
def test_a_padded_vocabulary_is_that_of_the_model(name, said, known, tp, alike):
    assert figures.same(name, said, known, tp) == alike


def test_figures_of_models():
    dense = figures.figures_of(load_model("llama3-8b"))
    assert dense == {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "key_value_heads": 8,
        "head_dim": 128,
        "vocabulary": 128256,
        "mtp_layers": 0,
        "mtp_shared": False,
        "tied_embeddings": False,
        "ffn": 14336,
        "experts": 0,
        "gated": True,
        "latent_attention": False,
        "windowed": False,
    }
    latent = figures.figures_of(load_model("deepseek-v3"))
    assert not {"key_value_heads", "head_dim"} & set(latent)
    assert (latent["ffn"], latent["experts"], latent["experts_per_token"], latent["expert_ffn"]) == (18432, 256, 8, 2048)
    sparse = figures.figures_of(load_model("mixtral-8x7b"))
    assert ("ffn" in sparse, sparse["experts"]) == (False, 8)


def context(said=None, asked=None, case=None, model="llama3-8b", layout=None, starts=None, size=None, **figures_said):
    said = {"devices": None, "precision": None, "sequence_tokens": None, "model": None, **(said or {}), "figures": figures_said}
    return Some(
        question=Some(model=load_model(model) if model else None, asked=asked or {}, starts=starts, num_devices=size),
        layout=layout,
        case=case,
        reading=Some(said=Some(**said), layout=layout),
    )


def test_figures_that_are_not_those_of_the_model():
    def wrong(**said):
        return [(each.severity, each.value, each.expected) for each in figures.model_figures(context(**said))]

    assert wrong(layers=32, hidden=4096, unheard=3) == []
    assert wrong(layers=31) == [("error", 31, 32)]
    assert wrong(vocabulary=128257) == [("warning", 128257, 128256)]
    assert list(figures.model_figures(context(model=None, layers=31))) == []
    padded = 128256 + 7 * 128 * 3
    split = Some(tensor_parallel=7)
    found = [
        list(figures.model_figures(context(layout=layout, vocabulary=-(-128256 // (7 * 128)) * 7 * 128)))
        for layout in (None, split)
    ]
    assert padded and [len(each) for each in found] == [1, 0]


def test_contradictions():
    def wrong(**given):
        return [(each.severity, each.message.id, each.value, each.expected) for each in figures.contradictions(context(**given))]

    assert wrong(said={"precision": "bf16"}, asked={"precision": "bf16", "sequence_tokens": 4096}) == []
    assert wrong(said={"precision": "fp8"}, asked={"precision": "bf16"}) == [("error", "check.contradiction", "fp8", "bf16")]
    files = {"launch": "graphs=none host=plain dispatcher=alltoall"}
    assert wrong(said=files, asked={"launch": "attention=named host=plain"}) == []  # what only one of both says is no contradiction
    assert wrong(said=files, asked={"launch": "graphs=step host=plain"}) == [
        ("error", "check.contradiction", "graphs=none", "graphs=step")]
    case = Some(cluster=Some(num_devices=16))
    assert wrong(said={"devices": 16}, case=case) == wrong(case=case) == wrong(said={"devices": 8}) == []
    assert wrong(said={"devices": 17}, case=case) == [("error", "check.devices", 17, 16)]
    assert wrong(said={"devices": 15}, case=case) == [("warning", "check.devices", 15, 16)]
    assert wrong(said={"devices": 16}, starts=24, case=case) == [("error", "check.devices", 24, 16)]
    assert wrong(said={"devices": 16}, starts=24, size=16) == [("error", "check.devices", 24, 16)]
    assert wrong(said={"devices": 16}, asked={"devices": 16}, starts=24) == [("error", "check.contradiction", 24, 16)]
    assert wrong(said={"devices": 15}, asked={"devices": 16}, case=case) == [("error", "check.contradiction", 15, 16)]


def test_models_that_have_the_figures_of_the_files():
    def likely(**said):
        return figures.likely_models(context(**said).reading)

    assert likely(layers=32, hidden=4096) == ()
    assert "llama3-8b" in likely(layers=32, hidden=4096, heads=32)
    assert "llama3-8b" not in likely(layers=32, hidden=4096, heads=32, ffn=11008)
    assert "llama3-8b" in likely(layers=32, hidden=4096, heads=32, ffn=14336, unheard=1)
