"""Facts on disk become values: devices, clusters and models, each figure with its unit and source.

Importing this package reads no data; every sheet is read when it is first asked for, and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from meshwright.catalog.calibrations import (
    calibration,
    calibration_table,
    calibrations,
    constant_figures,
    freedoms,
    key_for,
    priors,
)
from meshwright.catalog.cluster_sheet import cluster_for, cluster_provenance, clusters, load_cluster
from meshwright.catalog.device_sheet import device, device_provenance, devices
from meshwright.catalog.figures import Provenance
from meshwright.catalog.guides import guides
from meshwright.catalog.implementations import implementation, implementations
from meshwright.catalog.model_sheet import load_model, model_provenance, models, published_parameters
from meshwright.catalog.recipes import optimizer, optimizers, precision, precisions
from meshwright.catalog.shrinking import shrink

__all__ = [
    "Provenance",
    "calibration",
    "calibration_table",
    "calibrations",
    "cluster_for",
    "clusters",
    "constant_figures",
    "device",
    "devices",
    "freedoms",
    "guides",
    "implementation",
    "implementations",
    "key_for",
    "load_cluster",
    "load_model",
    "models",
    "optimizer",
    "optimizers",
    "precision",
    "precisions",
    "priors",
    "provenance",
    "published_parameters",
    "shrink",
]


def provenance(section: Literal["device", "cluster", "model"], name: str) -> Mapping[str, Provenance]:
    """Every figure of a device, cluster or model by its path: value, unit and source as the file states them."""
    readers = {"device": device_provenance, "cluster": cluster_provenance, "model": model_provenance}
    return readers[section](name)
