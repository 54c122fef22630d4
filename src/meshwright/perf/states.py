"""Parameters, gradients and optimizer states of a rank, and the time of the optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.arrays import Array, array
from meshwright.perf.elementwise import memory_bound_s

if TYPE_CHECKING:
    from meshwright.domain.case import Case


FULL_PRECISION_BYTES = 4.0
ADAM_BYTES = 8.0
"""Two moments in FP32: what ``plain_update_bytes`` is of."""


class Shards(Struct, frozen=True, kw_only=True):
    """Over how many ranks each state is split, for dense parameters and for experts; columns."""

    optimizer: Array
    gradient: Array
    parameter: Array
    expert_data_parallel: Array

    def of_experts(self, shards: Array) -> Array:
        """Experts are split over at most their own replicas: min(K, expert data parallelism)."""
        return np.minimum(shards, self.expert_data_parallel)


class States(Struct, frozen=True, kw_only=True):
    """Bytes of a rank's training state, and how many parameters its optimizer updates."""

    parameter_bytes: Array
    gradient_bytes: Array
    optimizer_bytes: Array
    master_bytes: Array
    """Part of ``optimizer_bytes`` that exists before the first update: the master copy."""
    owned_parameters: Array
    """Parameters whose optimizer state lies on this rank."""
    reduced_parameters: Array
    """Parameters whose whole gradient passes through this rank before it is sharded."""
    step_bytes: Array
    """What the optimizer step holds beside all that, when activations are gone."""

    @property
    def total_bytes(self) -> Array:
        """Parameters, gradients and optimizer state."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


def training_states(dense: Array, experts: Array, adapters: Array, shards: Shards, case: Case) -> States:
    """Bytes of parameters, gradients and optimizer states on one rank.

        parameters  w (P_d / K_p + P_e / k_p);   with ``full_precision_shards`` and K_p > 1 c instead of w, and no c below
        gradients   (g + x)(P_d / K_g + P_e / k_g)
        optimizer   (c + o + u)(P_d / K_o + P_e / k_o)
        step        v (P_d / K_o + P_e / k_o), no part of the sum of the three

    Symbols: P_d, P_e parameters of the rank before data-parallel sharding, dense and expert; K shards, k = min(K, expert data
             parallelism); w, g, c, o bytes of weight, gradient, master copy and moments; x 16-bit gradients beside FP32 ones; u
             what the update holds beside (``update_gradient_bytes``), v what it holds when activations are gone
             (``step_gradient_bytes``), where gradients are of 16 bits, and ``weight_cast_bytes`` in any case; as a list of
             operators v grows by one moment, the square roots; no v where the optimizer runs on the host.
             Frozen weights have parameters only; their adapters have all three, whole.
    Shapes:  everything broadcasts.
    Units:   parameters -> bytes.
    Source:  Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054); Megatron-Core 6 + 12/(D c) (docs/sources.md#states); torchtitan
             and Accelerate (fsdp_utils.py fsdp2_prepare_model) hand FP32 weights to FSDP2, which gathers them in BF16;
             Transformer Engine tensor/utils.py quantize_master_weights.
    """
    precision, optimizer = case.training.precision, case.training.optimizer
    full = precision.gradient_bytes >= FULL_PRECISION_BYTES
    gradient = precision.gradient_bytes + (case.implementation.extra_gradient_bytes if full else 0.0)
    state = optimizer.state_bytes
    step = precision.weight_cast_bytes + (0.0 if full else case.implementation.step_gradient_bytes)
    if not full:
        state += case.implementation.update_gradient_bytes
    if case.launch.plain_optimizer:
        step += optimizer.state_bytes / 2.0
    held = dense / shards.parameter + experts / shards.of_experts(shards.parameter)
    if case.training.weights_frozen:
        return States(
            parameter_bytes=precision.parameter_bytes * (held + adapters),
            gradient_bytes=gradient * adapters,
            optimizer_bytes=(precision.master_bytes + state) * adapters,
            master_bytes=precision.master_bytes * adapters,
            owned_parameters=adapters,
            reduced_parameters=adapters,
            step_bytes=step * adapters,
        )
    weight, master = array(precision.parameter_bytes), array(precision.master_bytes)
    if case.implementation.full_precision_shards and precision.master_bytes:
        sharded = shards.parameter > 1.0
        weight, master = np.where(sharded, master, weight), np.where(sharded, 0.0, master)
    buffered = dense / shards.gradient + experts / shards.of_experts(shards.gradient)
    owned = dense / shards.optimizer + experts / shards.of_experts(shards.optimizer)
    return States(
        parameter_bytes=weight * held,
        gradient_bytes=gradient * buffered,
        optimizer_bytes=(master + state) * owned,
        master_bytes=master * owned,
        owned_parameters=owned,
        reduced_parameters=dense + experts,
        step_bytes=step * owned,
    )


def optimizer_s(states: States, case: Case, *, offload: bool = False) -> Array:
    """Time of the optimizer step of a rank.

    States and master copy are read and written, the gradient read, the weight written; scaling, zeroing and the norm pass over
    whole gradients, however they are sharded afterwards. On the host the gradient travels down, the weight up, and host memory
    is the bound.

        device  (2 (c + o) + g + w) P_o + q P_g  over the device's memory bandwidth;   u P_o + q P_g where tables say u;
                b o / 8 P_o more as a list of operators (``Launch.plain_optimizer``)
        host    (g + w) P_o / link + (2 (c + o) + g + w) P_o / host

    Symbols: P_o parameters updated here; P_g parameters whose whole gradients pass through; q ``optimizer_passes_bytes``; u
             ``update_bytes``; b ``plain_update_bytes``, of Adam's two FP32 moments.
    Shapes:  the fields of ``states``.
    Units:   s.
    Source:  itemised as in SimuMax _compute_optim_time (docs/sources.md#memory-bound-operators).
    """
    precision, optimizer, constants = case.training.precision, case.training.optimizer, case.calibration.constants
    moved = 2.0 * (precision.master_bytes + optimizer.state_bytes) + precision.gradient_bytes + precision.parameter_bytes
    passes = memory_bound_s(case.implementation.optimizer_passes_bytes * states.reduced_parameters, case.cluster.device, constants)
    if not offload:
        share = optimizer.state_bytes / ADAM_BYTES if case.launch.plain_optimizer else 0.0
        updated = (case.implementation.update_bytes or moved) + constants.plain_update_bytes * share
        return passes + memory_bound_s(updated * states.owned_parameters, case.cluster.device, constants, kind="adam")
    travel = (precision.gradient_bytes + precision.parameter_bytes) * states.owned_parameters
    return passes + travel / case.cluster.host_link_bytes_per_s + moved * states.owned_parameters / constants.host_adam_bytes_per_s


def adapter_parameters(case: Case, dense_layers: Array, tensor_parallel: Array) -> Array:
    """Parameters of LoRA adapters on a rank.

        sum over targets of r (in + out) per layer, the sharded side divided by TP

    Shapes:  dense_layers (layers of the stage) and tensor_parallel broadcast.
    Units:   parameters.
    Holds:   adapters on dense projections; experts carry none.
    Source:  Hu et al. 2021 (LoRA, arXiv 2106.09685).
    """
    lora = case.training.lora
    if lora is None:
        return array(0.0) * dense_layers
    kind, hidden = case.model.kinds[0], case.model.hidden
    attention, block = case.model.attention, case.model.feed_forward
    wide = {
        "query": attention.query_width, "key": attention.key_width, "value": attention.value_width,
        "output": attention.output_width,
    }
    sharded = float(sum(size for target, size in wide.items() if target in lora.targets))
    whole = float(hidden * sum(target in lora.targets for target in wide))
    if "mlp" in lora.targets and kind.experts is None and kind.has_block:
        width = float(getattr(block, "width", 0))
        sharded += (block.num_inputs + 1) * width
        whole += (block.num_inputs + 1) * hidden
    return dense_layers * lora.rank * (whole + sharded / tensor_parallel)
