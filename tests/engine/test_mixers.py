"""Linear mixers of the reference step beside the classes of transformers in FP64: values and gradients, and what backward keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.domain.mixers import GatedDelta, Mamba2

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from meshwright.engine import mixers, scans  # noqa: E402
from meshwright.engine.mixers import mixer_block  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor, nn

    from meshwright.domain.mixers import Mixer

pytestmark = pytest.mark.oracle
HIDDEN = 24
DELTA = GatedDelta(key_heads=2, value_heads=4, key_dim=8, value_dim=6, convolution=4, chunk_tokens=64)
MAMBA = Mamba2(num_heads=4, head_dim=6, state_dim=10, num_groups=2, convolution=4, chunk_tokens=16)
EPSILON = 1e-5


class Wider:
    """torch, whose FP32 is FP64: transformers computes recurrences in FP32 whatever comes in."""

    def __getattr__(self, name: str) -> Any:
        return torch.float64 if name == "float32" else getattr(torch, name)


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.nemotron_h import modeling_nemotron_h
    from transformers.models.qwen3_next import modeling_qwen3_next

    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for module in (modeling_nemotron_h, modeling_qwen3_next):
        monkeypatch.setattr(module, "torch", Wider())


def drawn(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    for parameter in module.parameters():
        parameter.data = torch.empty(parameter.shape, dtype=torch.float64).normal_(std=0.4, generator=generator)
    return module


def of_transformers(mixer: Mixer) -> nn.Module:
    if isinstance(mixer, GatedDelta):
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

        return Qwen3NextGatedDeltaNet(SimpleNamespace(
            hidden_size=HIDDEN, linear_num_value_heads=mixer.value_heads, linear_num_key_heads=mixer.key_heads,
            linear_key_head_dim=mixer.key_dim, linear_value_head_dim=mixer.value_dim, linear_conv_kernel_dim=mixer.convolution,
            hidden_act="silu", rms_norm_eps=EPSILON, layer_types=["linear_attention"], dtype=None,
        ), 0)
    from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMamba2Mixer

    assert isinstance(mixer, Mamba2)
    return NemotronHMamba2Mixer(SimpleNamespace(
        mamba_num_heads=mixer.num_heads, hidden_size=HIDDEN, ssm_state_size=mixer.state_dim, conv_kernel=mixer.convolution,
        use_conv_bias=mixer.convolution_bias, mamba_hidden_act="silu", n_groups=mixer.num_groups, mamba_head_dim=mixer.head_dim,
        chunk_size=mixer.chunk_tokens, time_step_min=0.0, use_bias=mixer.bias, layer_norm_epsilon=EPSILON, layer_types=["mamba"],
        use_mamba_kernels=True,
    ), 0).eval()


def copied(ours: nn.Module, theirs: Any, mixer: Mixer) -> dict[str, tuple[Tensor, ...]]:
    """Our weights in their layout; for each of theirs, ours that it is made of, in order, as rows."""
    def rows(*names: str) -> tuple[Tensor, ...]:
        return tuple(ours.get_parameter(name) for name in names)

    if isinstance(mixer, Mamba2):
        made = {
            "in_proj.weight": rows(*(f"{name}.weight" for name in ("gate", "value", "inward", "outward", "step"))),
            "conv1d.weight": rows("value_taps.taps", "inward_taps.taps", "outward_taps.taps"),
            "conv1d.bias": rows("value_taps.bias", "inward_taps.bias", "outward_taps.bias"),
            "A_log": rows("rate"), "dt_bias": rows("step_bias"), "D": rows("skip"), "norm.weight": rows("norm.weight"),
            "out_proj.weight": rows("output.weight"),
        }
    else:
        assert isinstance(mixer, GatedDelta)
        by_head = [
            each.view(mixer.key_heads, -1, HIDDEN).unbind()
            for each in rows("query.weight", "key.weight", "value.weight", "gate.weight")
        ]
        scalars = [each.view(mixer.key_heads, -1, HIDDEN).unbind() for each in rows("strength.weight", "step.weight")]
        made = {
            "in_proj_qkvz.weight": tuple(part for head in zip(*by_head, strict=True) for part in head),
            "in_proj_ba.weight": tuple(part for head in zip(*scalars, strict=True) for part in head),
            "conv1d.weight": rows("query_taps.taps", "key_taps.taps", "value_taps.taps"),
            "A_log": rows("rate"), "dt_bias": rows("step_bias"), "norm.weight": rows("norm.weight"),
            "out_proj.weight": rows("output.weight"),
        }
    for name, parts in made.items():
        target = theirs.get_parameter(name)
        target.data = torch.cat(list(parts)).detach().reshape(target.shape).clone()
    return made


@pytest.mark.parametrize("tokens", [16, 50, 130])
@pytest.mark.parametrize("mixer", [DELTA, MAMBA], ids=["gated-delta", "mamba-2"])
def test_values_and_gradients_equal_transformers(mixer: Mixer, tokens: int) -> None:
    ours, theirs = drawn(mixer_block(HIDDEN, mixer)), of_transformers(mixer).double()
    made = copied(ours, theirs, mixer)
    assert {name for name, _ in theirs.named_parameters()} == set(made)
    assert sum(each.numel() for each in ours.parameters()) == sum(each.numel() for each in theirs.parameters())
    generator = torch.Generator().manual_seed(3)
    one = torch.empty(2, tokens, HIDDEN, dtype=torch.float64).normal_(generator=generator).requires_grad_()
    other = one.detach().clone().requires_grad_()
    mine, expected = ours(one), theirs(other)
    assert torch.allclose(mine, expected, rtol=1e-9, atol=1e-11)
    against = torch.empty_like(mine).normal_(generator=generator)
    mine.backward(against)
    expected.backward(against)
    assert torch.allclose(one.grad, other.grad, rtol=1e-8, atol=1e-10)
    for name, parts in made.items():
        gradient = theirs.get_parameter(name).grad
        assert gradient is not None
        assert gradient.abs().max() > 0
        if isinstance(mixer, GatedDelta) and name.startswith("in_proj"):
            continue  # views of ours: below
        found = torch.cat([part.grad for part in parts]).reshape(gradient.shape)
        assert torch.allclose(found, gradient, rtol=1e-8, atol=1e-9), name
    if isinstance(mixer, GatedDelta):
        names = ("query", "key", "value", "gate", "strength", "step")
        heads = [ours.get_parameter(f"{name}.weight").grad.view(mixer.key_heads, -1, HIDDEN) for name in names]
        assert torch.allclose(torch.cat(heads[:4], 1).flatten(0, 1), theirs.in_proj_qkvz.weight.grad, rtol=1e-8, atol=1e-9)
        assert torch.allclose(torch.cat(heads[4:], 1).flatten(0, 1), theirs.in_proj_ba.weight.grad, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mixer", [DELTA, MAMBA], ids=["gated-delta", "mamba-2"])
def test_the_size_of_a_chunk_changes_nothing(mixer: Mixer) -> None:
    from dataclasses import replace

    x = torch.randn(1, 70, HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    one, other = (drawn(mixer_block(HIDDEN, replace(mixer, chunk_tokens=size))) for size in (8, 64))
    assert torch.allclose(one(x), other(x), rtol=1e-9, atol=1e-11)


def test_a_fused_function_keeps_its_inputs_alone() -> None:
    kept: list[Tensor] = []
    x = torch.randn(1, 12, 5, dtype=torch.float64, requires_grad=True)
    taps = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        out = mixers.fused(scans.causal_convolution, x, taps, None)
    assert {each.data_ptr() for each in kept if each is not None} == {x.data_ptr(), taps.data_ptr()}
    assert torch.autograd.gradcheck(lambda one, two: mixers.fused(scans.causal_convolution, one, two, None), (x, taps))
    assert out.shape == x.shape
