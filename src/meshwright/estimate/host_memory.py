"""Host memory of the fullest node, part by part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain import estimate as values
from meshwright.estimate.evaluate import evaluate_columns

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.estimate.evaluate import Evaluation

REASONS = {
    "offload": "optimizer states and master weights of the node's ranks, which the layout keeps here",
    "pinned": "their gradients on the way to the update, and activations that wait, in pinned buffers",
    "checkpoint": "an asynchronous checkpoint stages every parameter with its state that a rank of the node owns, once",
    "loader": "counted with the processes",
    "other": "a process for each device: interpreter, libraries, data loading, communication buffers",
}
"""What each part is, for people."""


def host_memory(case: Case, evaluation: Evaluation) -> values.HostMemory:
    """Host memory of the fullest node by part.

        offload     d (c + o) P_o where states are offloaded;   pinned  d g P_o there, and d A
        checkpoint  d (c + o + w) P_o;                          other   d process

    Symbols: A activations of a rank that wait here (``Launch.offloads``); d devices of a node; P_o parameters whose state a rank
             owns; c, o, g, w bytes of master weight, state, gradient and weight.
    Units:   bytes.
    Holds:   asynchronous checkpoints stage every owned state; loaders are in the prior of ``host_process_bytes``, not apart.
    Source:  guide 002:122 (memory of the host beside the device's); prior of ``host_process_bytes``.
    """
    precision, optimizer = case.training.precision, case.training.optimizer
    devices = min(case.cluster.devices_per_node, float(evaluation.degrees.world))
    owned = devices * float(np.max(evaluation.state.states.owned_parameters))
    state, moved = precision.master_bytes + optimizer.state_bytes, float(evaluation.settings.offload)
    return values.HostMemory(
        offload=moved * state * owned,
        pinned=moved * precision.gradient_bytes * owned + devices * waiting_activations(case, evaluation),
        checkpoint=(state + precision.parameter_bytes) * owned, loader=0.0,
        other=float(devices * case.calibration.constants.host_process_bytes),
    )


def waiting_activations(case: Case, evaluation: Evaluation) -> float:
    """Bytes of activations of the rank that has most of them on the host: what its device would hold more without.

    Units:   bytes.
    Source:  ``estimate.costs``, with and without the settings of the launch that move activations.
    """
    if not case.launch.offloads:
        return 0.0
    stays = replace(case.launch, offloaded_layers=0, offloaded_modules=(), offloaded_checkpoints=False)
    other = evaluate_columns(replace(case, launch=stays), evaluation.settings, evaluation.degrees, evaluation.composition)
    return float(np.max(other.activation.activations - evaluation.activation.activations))
