"""A mixture of experts: router, routed experts on this rank, shared experts; tokens travel to their experts and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.domain.model import Mlp
from meshwright.engine.exchange import exchange
from meshwright.engine.feed_forward import FeedForward

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from meshwright.domain.model import MixtureOfExperts


class Routed(nn.Module):
    """The routed experts of this rank: all, or ``count`` from the ``first`` on. Their replicas are other ranks than dense ones."""

    def __init__(self, hidden: int, block: MixtureOfExperts, *, first: int = 0, count: int | None = None) -> None:
        super().__init__()
        width, number = block.expert_width, block.num_experts if count is None else count
        self.first, self.num_experts = first, block.num_experts
        self.up = nn.Parameter(torch.empty(number, hidden, width))
        self.gate = nn.Parameter(torch.empty(number, hidden, width)) if block.gated else None
        self.down = nn.Parameter(torch.empty(number, width, hidden))
        self.up_bias: nn.Parameter | None
        self.gate_bias: nn.Parameter | None
        self.down_bias: nn.Parameter | None
        biases = {"up_bias": width, "gate_bias": width if block.gated else 0, "down_bias": hidden}
        for name, size in biases.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(number, size)) if block.expert_bias and size else None)
        for weight in (self.up, self.gate, self.down):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)
        self.group: ProcessGroup | None = None
        """Ranks that hold the other experts; None: all are here."""

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Rows ``[tokens x k, hidden]`` sorted by expert, ``counts`` of each, through their experts, wherever these are."""
        if self.group is None:
            return self._local(rows, counts.tolist())
        size = self.group.size()
        arriving = torch.empty_like(counts)
        torch.distributed.all_to_all_single(arriving, counts, group=self.group)
        sent = counts.view(size, -1).sum(dim=1).tolist()
        received = arriving.view(size, -1).sum(dim=1).tolist()
        there = exchange(rows, self.group, received, sent)
        by_source = arriving.view(size, -1)
        expert = torch.arange(by_source.shape[1], device=rows.device).repeat(size).repeat_interleave(by_source.flatten())
        order = expert.argsort(stable=True)
        done = self._local(there[order], by_source.sum(dim=0).tolist())
        back = torch.empty_like(done).index_copy(0, order, done)
        return exchange(back, self.group, sent, received)

    def _local(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Rows sorted by expert through the experts of this rank. Weights are taken apart at once: one by one, each gradient
        would be a tensor as large as all of them.
        """
        parts = []
        ups, downs = self.up.unbind(), self.down.unbind()
        gates = None if self.gate is None else self.gate.unbind()
        for expert, part in enumerate(torch.split(rows, counts)):
            inner = part @ ups[expert]
            if self.up_bias is not None:
                inner = inner + self.up_bias[expert]
            if gates is None:
                inner = functional.gelu(inner)
            else:
                gate = part @ gates[expert]
                inner = functional.silu(gate if self.gate_bias is None else gate + self.gate_bias[expert]) * inner
            out = inner @ downs[expert]
            parts.append(out if self.down_bias is None else out + self.down_bias[expert])
        return torch.cat(parts)


class Experts(nn.Module):
    """Router, routed experts and shared experts."""

    def __init__(self, hidden: int, block: MixtureOfExperts) -> None:
        super().__init__()
        count = block.num_experts
        self.hidden, self.block = hidden, block
        self.router = nn.Linear(hidden, count, bias=block.router_bias)
        if block.correction_bias:
            self.register_buffer("correction", torch.zeros(count))
        self.routed = Routed(hidden, block)
        shared = Mlp(width=block.shared_width, gated=block.gated)
        self.shared: nn.Module | None = FeedForward(hidden, shared) if block.shared_width else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if block.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same; every token's result does not depend on where its experts are."""
        flat = x.flatten(0, -2)
        weights, chosen = self._route(flat)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=self.block.num_experts)
        rows = flat[order // self.block.experts_per_token]
        out = self.routed(rows, counts)
        scaled = out * weights.flatten()[order, None].to(out.dtype)
        result = torch.zeros_like(flat).index_add(0, order // self.block.experts_per_token, scaled)
        result = result.view_as(x)
        if self.shared is not None:
            extra = self.shared(x)
            result = result + (extra if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * extra)
        return result

    def _route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and experts of every token, ``[tokens, k]``."""
        scores = self.router(flat).float()
        if self.block.correction_bias:
            shares = scores.sigmoid()
            chosen = (shares + self.get_buffer("correction")).topk(self.block.experts_per_token, dim=-1).indices
            weights = shares.gather(-1, chosen)
            weights = weights / weights.sum(dim=-1, keepdim=True)
        else:
            top, chosen = scores.topk(self.block.experts_per_token, dim=-1)
            weights = top.softmax(dim=-1)
        return weights * self.block.routed_scale, chosen
