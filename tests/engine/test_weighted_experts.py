"""Where experts' results are weighted decides what is kept of them: real modules of PyTorch, hooks on saved tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from meshwright.perf.activations import saved_bytes  # noqa: E402
from meshwright.perf.operators import work_shape  # noqa: E402
from strategies import small_case  # noqa: E402

TOKENS, WIDE, INNER = 24, 16, 40


class _Gate(torch.autograd.Function):
    """A fused gated activation that weights its rows and keeps its inputs alone."""

    @staticmethod
    def forward(ctx, both, weight):
        ctx.save_for_backward(both, weight)
        gate, up = both.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up * weight

    @staticmethod
    def backward(ctx, grad):
        both, weight = ctx.saved_tensors
        with torch.enable_grad():
            both, weight = both.detach().requires_grad_(), weight.detach().requires_grad_()
            gate, up = both.chunk(2, dim=-1)
            return torch.autograd.grad(torch.nn.functional.silu(gate) * up * weight, (both, weight), grad)


def _kept(inside: bool) -> int:
    """Elements per routed token that one expert keeps, its weights and the routing left out."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(TOKENS, WIDE, generator=generator, requires_grad=True)
    first = torch.randn(WIDE, 2 * INNER, generator=generator, requires_grad=True)
    second = torch.randn(INNER, WIDE, generator=generator, requires_grad=True)
    weight = torch.rand(TOKENS, 1, generator=generator, requires_grad=True)
    kept: dict[int, int] = {}

    def pack(tensor):
        if tensor.data_ptr() not in (first.data_ptr(), second.data_ptr(), weight.data_ptr()):
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    ones = torch.ones(TOKENS, 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = _Gate.apply(rows @ first, weight if inside else ones) @ second
        if not inside:
            out = out * weight
        held = out  # as long as its result, a tensor that is kept is not freed
    held.sum().backward()
    kept.pop(ones.data_ptr(), None)
    return sum(kept.values()) // TOKENS


def test_weights_inside_the_activation_keep_no_result():
    assert _kept(inside=True) == WIDE + 3 * INNER
    assert _kept(inside=False) == 2 * WIDE + 3 * INNER


@pytest.mark.parametrize(("implementation", "results"), [("megatron-te", 0), ("nanotron", 1)])
def test_tables_say_the_same(implementation, results):
    case = small_case("mixtral-8x7b", sequence=512, implementation=implementation)
    kind, hidden = case.model.kinds[0], case.model.hidden
    shape = work_shape(microbatch_sequences=1, sequence_tokens=512, tensor_parallel=1, sequence_parallel=0, context_parallel=1,
                       expert_parallel=1, expert_tensor_parallel=1)
    options = {"implementation": case.implementation, "precision": case.training.precision}
    routed = (saved_bytes(kind, hidden, 512, shape, headroom_ratio=each, **options) for each in (1.0, 0.0))
    experts = kind.experts
    per_token = (next(routed) - next(routed)) / (2.0 * 512 * experts.experts_per_token)
    assert float(per_token) == (1 + results) * hidden + 3 * experts.expert_width
