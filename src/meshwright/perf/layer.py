"""Time of one layer on one rank for one micro-batch: its operators (``pieces``), their communication, and what is run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.perf.arrays import Array, array
from meshwright.perf.elementwise import launch_floor_s
from meshwright.perf.exchange import collective_host_s, context_s, tensor_s
from meshwright.perf.expert_exchange import Woven, expert_s
from meshwright.perf.launches import Launches, kernels, starts
from meshwright.perf.messages import keeps_last_product
from meshwright.perf.pieces import ATTENTION_CORE, Pieces, layer_pieces, products_of
from meshwright.perf.product_times import product_s
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Overlap
    from meshwright.domain.model import LayerKind
    from meshwright.perf.exchange import Exposed
    from meshwright.perf.operators import WorkShape
    from meshwright.perf.placement import Groups

COMMUNICATION = "comm"


class LayerTime(Struct, frozen=True, kw_only=True):
    """Forward and backward of one layer."""

    forward: Seconds
    backward: Seconds
    weight_gradient_s: Array
    """The part of the backward that may wait (zero bubble): what the input gradients leave of it, waits for the host included."""
    forward_window_s: Array
    """What communication on other streams can hide behind: the device computes, or waits for its host."""
    backward_window_s: Array
    regather_s: Array
    """Gathering in backward what sequence parallelism cut, where only the module ``comm`` does."""
    exchange_s: Array
    """The exchange in front of attention, where the recomputation of its core runs it again."""
    unwoven: Seconds
    """What both passes take more where they stand beside no other: nothing but where exchanges of experts are woven."""
    again: Seconds
    """The forward as a full recomputation runs it: woven into no other pass, without what is left out."""
    pieces: Pieces


def _woven(pieces: Pieces, ahead: Array, behind: Array) -> Woven:
    """The parts of both passes of a mixture layer, its gaps between kernels shared out as its operators are."""
    alone = pieces.products_forward + pieces.attention_forward + pieces.elementwise_forward
    back = pieces.products_input + pieces.products_weight + pieces.attention_backward + pieces.elementwise_backward
    experts, experts_back = ahead * pieces.experts_forward / alone, behind * pieces.experts_backward / back
    return Woven(forward=ahead - experts, experts_forward=experts, backward=behind - experts_back, experts_backward=experts_back)


def _host(kind: LayerKind, case: Case, groups: Groups) -> tuple[Array, Array, Array]:
    """Reading of token counts, and what the host does beside launching kernels forward and backward; seconds."""
    constants, implementation = case.calibration.constants, case.implementation
    waits = kind.experts is not None and implementation.expert_host_sync and not implementation.cuda_graphs
    sync = array(constants.expert_sync_s) if waits else array(0.0)
    eager = waits and case.launch.graphs != "partial" and not case.cluster.device.synchronous
    routing = array(constants.expert_host_s) if eager else array(0.0)
    each = collective_host_s(case, groups)
    ahead = routing + implementation.collectives_forward * each
    behind = routing + implementation.collectives_backward * each
    if implementation.units is not None:
        ahead, behind = ahead + unit_host_s(case), behind + unit_host_s(case)
    return sync, ahead, behind


def layer_time(
    kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, *, overlap: Overlap, context_kind: ContextKind,
    masking: tuple[Array, Array] | None = None,
) -> LayerTime:
    """Forward and backward of one layer for one micro-batch, with what communication leaves exposed.

        window = compute + wait for the host;   compute alone where every launch is waited for, or the device is the host
        wait = floor(busy) of each pass;   floor(forward + backward) / 2 of each where exchanges of experts weave the two
        weight gradient = backward - input gradients - their own wait
        refill = max(0, sync - dispatch);   sync where the dispatch stands beside another pass
        busy   = what the device computes and waits for, less the part of a dispatch beside which the host refills its queue

    Symbols: sync ``expert_sync_s``, from the host's reading of the numbers of tokens until its queue is full again: it reads them
             right before the exchange, which runs beside its next launches; floor ``launch_floor_s``; ``masking`` what a mask adds
             to the attention core of both passes (``perf.masked``).
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   an idle device hides what travels as a busy one does, so neither slower operators nor a slower host make a step
             shorter. Exchanges of experts hide behind compute; what is left of them fills the wait for the host. Input gradients
             wait for their own launches alone: longer weight gradients make no pass of theirs, on which other stages wait, shorter.
    Source:  Megatron-Core token_dispatcher.py, MoEAlltoAllTokenDispatcher (cuda_sync_point before_ep_alltoall);
             ``layer_pieces``, ``perf.exchange`` and ``perf.expert_exchange``; collectives run on streams of their own (CUDA C++
             Programming Guide, streams).
    """
    pieces, constants = layer_pieces(kind, case, shape, masking), case.calibration.constants
    implementation = case.implementation
    kernels_forward, kernels_backward = kernels(kind, case, shape, context_kind)
    tensor = tensor_s(kind, case, shape, groups, pieces.beside, pieces.products_forward, overlap=overlap)
    context = context_s(kind, case, shape, groups, pieces.attention_forward, pieces.attention_backward, context_kind=context_kind)
    ahead = pieces.products_forward + pieces.attention_forward + pieces.elementwise_forward + pieces.cast / 3.0
    behind = pieces.products_input + pieces.products_weight + pieces.attention_backward + pieces.elementwise_backward
    behind = behind + pieces.cast * (2.0 / 3.0)
    ahead = ahead + kernels_forward * constants.kernel_gap_s + tensor.slowdown_forward
    behind = behind + kernels_backward * constants.kernel_gap_s + tensor.slowdown_backward
    pace = array(constants.plain_host_ratio if case.launch.plain_host else 1.0)
    sync, ahead_host, behind_host = _host(kind, case, groups)

    def waits_s(device_s: Array, launches: Launches, collectives_s: Array) -> Array:
        return launch_floor_s(
            device_s, launches.operators, constants, native=launches.native, collectives_s=collectives_s, pace=pace,
            graphs=implementation.cuda_graphs, blocking=implementation.blocking_launches,
            synchronous=case.cluster.device.synchronous,
        )

    expert = expert_s(kind, case, shape, groups, _woven(pieces, ahead, behind), overlap=overlap)
    hidden = np.minimum(sync, expert.again / 2.0)
    alone = seconds(compute=ahead, tensor=tensor.forward, context=context.forward, expert=expert.again)
    alone_behind = seconds(compute=behind, tensor=tensor.backward, context=context.backward, expert=expert.again)
    ahead, behind = ahead + expert.slowdown_forward, behind + expert.slowdown_backward
    forward = structs.replace(alone, compute=ahead, expert=expert.forward)
    backward = structs.replace(alone_behind, compute=behind, expert=expert.backward)
    again = alone.plus(left_out(kind, case, shape, tensor).times(-1.0))
    host = starts(kind, case, shape, (kernels_forward, kernels_backward))
    wait_alone, wait_again = (waits_s(each.total - hidden, host.forward, ahead_host) for each in (alone, again))
    wait_forward, wait_backward = wait_alone, waits_s(backward.total, host.backward, behind_host)
    weight = pieces.products_weight
    wait_input = waits_s(backward.total - weight, host.backward_of_inputs, behind_host)
    refill, unwoven = sync - hidden, seconds()
    if overlap.expert and kind.experts is not None:
        total, both_host = forward.total + backward.total, ahead_host + behind_host
        both = waits_s(total, host.forward.plus(host.backward), both_host)
        input_both = waits_s(total - weight, host.forward.plus(host.backward_of_inputs), both_host)
        several, half = shape.expert_parallel > 1.0, np.minimum(both / 2.0, input_both)
        wait_forward = np.where(several, half, wait_forward)
        wait_backward = np.where(several, both - half, wait_backward)
        wait_input = np.where(several, input_both - half, wait_input)
        both_alone = sync - hidden + wait_alone + waits_s(alone_behind.total, host.backward, behind_host)
        refill = np.where(several, sync, refill)
        more = structs.replace(alone.plus(alone_behind), host=both_alone - refill - wait_forward - wait_backward)
        unwoven = more.plus(forward.plus(backward).times(-1.0)).times(np.where(several, 1.0, 0.0))
    idles = not implementation.blocking_launches and not case.cluster.device.synchronous
    return LayerTime(
        forward=structs.replace(forward, host=refill + wait_forward),
        backward=structs.replace(backward, host=wait_backward),
        unwoven=unwoven,
        again=structs.replace(again, host=sync - hidden + wait_again),
        weight_gradient_s=weight + wait_backward - wait_input,
        forward_window_s=ahead + refill + wait_forward if idles else ahead,
        backward_window_s=behind + wait_backward if idles else behind,
        regather_s=tensor.again,
        exchange_s=context.again,
        pieces=pieces,
    )


def unit_host_s(case: Case) -> Array:
    """Host time of one sharded unit of parameters in one pass, where the implementation has such units.

    Shapes:  none; a column where the constant is a column of trials.
    Units:   s.
    Source:  ``Constants.shard_host_s``; PyTorch FSDP2, hooks of a module.
    """
    return array(0.0 if case.implementation.units is None else case.calibration.constants.shard_host_s)


def left_out(kind: LayerKind, case: Case, shape: WorkShape, tensor: Exposed) -> Seconds:
    """The end of a forward that full recomputation does not run again: the last product and the message behind it.

        product + slowdown of what hides;   what the forward left exposed of the message

    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   implementations that stop early (``Implementation.checkpoints``), where nothing keeps the last product's result.
    Source:  torch.utils.checkpoint, early stop; ``perf.messages.keeps_last_product``.
    """
    if not case.implementation.checkpoints or keeps_last_product(kind):
        return seconds()
    last = products_of(kind, case, shape)[-1]
    return seconds(compute=product_s(last, case, "forward") + tensor.last_slowdown, tensor=tensor.last)


WITHIN_MOE = ("shared_experts",)
"""Modules that lie inside the one that module ``moe`` runs again."""


def recompute_s(time: LayerTime, modules: tuple[str, ...] | None) -> Seconds:
    """What backward runs again: the named modules, or the whole forward (``None``).

        full: the forward with its communication, without what is left out;   selective: forward of the modules' operators

    Shapes:  the columns of ``time``.
    Units:   s.
    Holds:   ``moe`` runs its all-to-all and its shared experts again, ``comm`` gathers again; ``layernorm`` and activations cost
             their passes only.
    Source:  Korthikanti et al. 2022 section 5; Megatron-Core recompute modules (docs/sources.md#activations).
    """
    if modules is None:
        return time.again
    compute = array(0.0)
    if "moe" in modules:
        modules = (*(module for module in modules if module not in WITHIN_MOE), *WITHIN_MOE)
    for module in modules:
        compute = compute + time.pieces.forward_of.get(module, array(0.0))
    expert = time.again.expert if "moe" in modules else np.zeros_like(time.again.expert)
    tensor = time.regather_s if COMMUNICATION in modules else np.zeros_like(time.regather_s)
    context = time.exchange_s if ATTENTION_CORE in modules else np.zeros_like(time.exchange_s)
    return seconds(compute=compute, tensor=tensor, context=context, expert=expert)
