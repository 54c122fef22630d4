"""Naming a case: the options that every verb shares, and the case that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.fields import Faults, Values
from meshwright.api.options import DEFAULTS
from meshwright.domain.cluster import Cluster
from meshwright.domain.model import Model
from meshwright.errors import fault
from meshwright.readers.names import require_name

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Device
    from meshwright.domain.layout import Layout
    from meshwright.domain.training import Batch, Precision

RATIOS = {"max_memory_ratio": "memory_ratio", "reserve_memory_ratio": "reserve_ratio"}
"""Option -> field of ``Case``, whose default holds where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A case, the framework that is to run it, and the request that named both."""

    case: Case
    framework: Any
    request: dict[str, Any]
    values: tuple[str, ...] = ()
    """Options that were given as values of the domain: only Python can say them again."""

    def layout(self, label: str) -> Layout:
        """Read a label for this case; nodes that the request leaves spare may stay idle."""
        from meshwright.domain.label import parse_layout
        from meshwright.estimate.overlap import overlap_for

        cluster = self.case.cluster
        return parse_layout(
            label,
            num_devices=cluster.num_devices,
            global_batch_sequences=self.case.batch.global_batch_sequences,
            devices_per_node=cluster.devices_per_node,
            model=self.case.model,
            shards_over_context=self.framework.features.shards_over_context,
            overlap=overlap_for(self.case),
            max_idle_devices=self.request.get("spare_nodes", 0) * cluster.devices_per_node,
        )


def setup(values: Values, faults: Faults) -> Setup:
    """The case that the values name; every fault in it is raised together with those found before."""
    from meshwright.catalog import load_model, shrink
    from meshwright.catalog.calibrations import calibration, check_name
    from meshwright.catalog.implementations import implementation
    from meshwright.catalog.recipes import optimizer, precision
    from meshwright.domain.case import Case
    from meshwright.domain.training import Lora, Training
    from meshwright.frameworks import framework

    _require(values, faults)
    request = DEFAULTS | dict(values)
    found: dict[str, Any] = {}
    with faults:
        found["framework"] = framework(request["framework"])
    with faults:
        if "model" in values:
            model = load_model(values["model"])
            found["model"] = shrink(model, values["layers"]) if "layers" in values else model
    with faults:
        found["cluster"] = _cluster(values, faults)
    with faults:
        found["batch"] = _batch(values)
    with faults:
        found["optimizer"] = optimizer(request["optimizer"])
    with faults:
        name = values.get("implementation") or (found["framework"].implementation if "framework" in found else None)
        if name is not None:
            found["implementation"] = implementation(name)
    with faults:
        default = found["implementation"].gradient_dtype if "implementation" in found else None
        found["precision"] = precision(request["precision"], values.get("gradient_dtype", default))
    with faults:
        check_name(request["calibration"])
        if found.get("cluster") is not None and {"implementation", "precision"} <= set(found):
            found["calibration"] = calibration(
                request["calibration"], found["cluster"], framework=found["implementation"].family,
                precision=found["precision"].name,
            )
    faults.check()
    _runs_on(found["precision"], found["cluster"].device)
    training = Training(
        task=request["task"], precision=found["precision"], optimizer=found["optimizer"],
        lora=values.get("lora", Lora()) if request["task"] == "lora" else None, tokens=values.get("tokens"),
    )
    case = Case(
        model=found["model"], cluster=found["cluster"], batch=found["batch"], training=training,
        implementation=found["implementation"], calibration=found["calibration"],
        flops_convention=request["flops_convention"],
        **{field: request[name] for name, field in RATIOS.items() if name in request},
    )
    return Setup(case=case, framework=found["framework"].for_case(case), request=_said(request), values=_as_values(request))


def _runs_on(recipe: Precision, device: Device) -> None:
    """Refuse a recipe that the device does not run, with those that it does."""
    from meshwright.catalog.recipes import precision, precisions

    if not recipe.runs_on(device):
        able = [name for name in precisions() if precision(name).runs_on(device)]
        raise fault(
            "request.precision", "{device} does not run {recipe}; it runs {able}", path="--precision",
            device=device.name, recipe=recipe.name, able=", ".join(able) or "none of the recipes",
        )


def _require(values: Values, faults: Faults) -> None:
    """What no case can do without."""
    given = set(values) | faults.failed
    if "model" not in given:
        faults.add("request.model", "MODEL is missing: a catalogue name, or the path of a config.json or model YAML")
    if not {"cluster", "device"} & given:
        faults.add("request.cluster", "the cluster is missing: --cluster NAME, or --device NAME with --nodes or --devices")
    if "global_batch" not in given:
        faults.add("request.batch", "--global-batch is missing: sequences per optimizer step")
    if "sequence" not in given:
        faults.add("request.sequence", "--sequence is missing: tokens of a sequence")


def _cluster(values: Values, faults: Faults) -> Cluster | None:
    """The cluster by name or by device, at its own size or at the size asked for."""
    from meshwright.catalog import cluster_for, load_cluster

    size = {"num_devices": values.get("devices"), "nodes": values.get("nodes")}
    if "cluster" in values:
        for other in ("device", "devices_per_node"):
            if other in values:
                option = f"--{other.replace('_', '-')}"
                faults.add("request.either", "--cluster already says it: leave out {option}", path=option, option=option)
        return load_cluster(values["cluster"], **size)
    if "device" not in values:
        return None
    if "," in values["device"] or "+" in values["device"]:
        faults.add("request.mixed", "mixed devices are not supported: plan each kind of device on its own", path="--device")
        return None
    if not any(size.values()) and not {"nodes", "devices"} & faults.failed:
        faults.add("request.size", "--nodes or --devices is missing: how many", path="--device")
    return cluster_for(values["device"], **size, devices_per_node=values.get("devices_per_node"))


def _batch(values: Values) -> Batch | None:
    """The batch, with packed documents where their lengths are given."""
    from meshwright.api.lengths import mean_square_tokens, read_lengths
    from meshwright.domain.training import Batch

    lengths = read_lengths(values["lengths"]) if "lengths" in values else None
    if "global_batch" not in values or "sequence" not in values:
        return None
    mean_square = mean_square_tokens(lengths, values["sequence"]) if lengths else None
    return Batch(
        global_batch_sequences=values["global_batch"], sequence_tokens=values["sequence"],
        mean_square_document_tokens=mean_square,
    )


def _said(request: dict[str, Any]) -> dict[str, Any]:
    """The request as it can be said again, from any directory: no empty values, absolute paths."""
    kept = {key: value for key, value in request.items() if value not in (None, [], False) and key not in _NOT_SAID}
    for key in ("model", "cluster", "lengths", "calibration"):
        if isinstance(kept.get(key), str) and Path(kept[key]).is_file():
            kept[key] = require_name(str(Path(kept[key]).resolve()), key)
    return {key: value.name if isinstance(value, Model | Cluster) else value for key, value in kept.items()}


def _as_values(request: dict[str, Any]) -> tuple[str, ...]:
    """Options that hold a model or a cluster itself, not its name."""
    return tuple(name for name, value in request.items() if isinstance(value, Model | Cluster))


_NOT_SAID = frozenset({"request", "json", "save", "force", "compare", "layout"})
