"""Naming a case: the options that every verb shares, and the case that they describe."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from meshwright.api.fields import Faults, Values
from meshwright.api.options import DEFAULTS
from meshwright.domain.cluster import Cluster
from meshwright.domain.model import Model
from meshwright.errors import InputError, Message, fault
from meshwright.readers.names import require_name
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.api.packs import Samples
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Device
    from meshwright.domain.layout import Layout
    from meshwright.domain.training import Batch, Precision

RATIOS = {"max_memory_ratio": "memory_ratio", "reserve_memory_ratio": "reserve_ratio"}
"""Option -> field of ``Case``, whose default holds where nothing is said."""


class Setup(Value, frozen=True, kw_only=True):
    """A case, the framework that is to run it, and the request that named both."""

    case: Case
    framework: Any
    request: dict[str, Any]
    values: tuple[str, ...] = ()
    """Options that were given as values of the domain: only Python can say them again."""
    samples: Samples | None = None
    """What the sequences are packs of, where lengths are given."""

    def packed(self, max_tokens: int, packs: int) -> Setup:
        """The same samples in so many packs of at most so many tokens, and the same images: as large a share of every pack."""
        from meshwright.api.packs import batch_of_samples
        from meshwright.domain.launch import launch_words, parse_launch
        from meshwright.domain.launching import launched, settings_of

        assert self.samples is not None, "only samples are packed"
        case = replace(self.case, batch=batch_of_samples(self.samples, self.request["global_batch"], max_tokens, packs))
        request = {**self.request, "max_tokens": max_tokens, "packs": packs}
        if "image_tokens" in case.launch.given:
            settings = parse_launch(request["launch"]) | {"image_tokens": settings_of(case)["image_tokens"]}
            case, request["launch"] = launched(case, settings), launch_words(settings)
        return replace(self, case=case, framework=self.framework.for_case(case), request=request)

    def _of_packs(self, message: Message) -> Message:
        """What is wrong with a label: where replicas do not share the packs, how many they would."""
        if self.samples is None or message.id != "label.batch":
            return message
        batch, product = (int(str(message.values[name])) for name in ("batch", "product"))
        more = -(-batch // product) * product
        template = "{batch} packs are no multiple of dp x mb = {dp} x {mb} = {product}; --packs {more} gives replicas as many each"
        fits = more <= self.case.batch.samples
        return replace(message, id="label.packs", template=template, values={**message.values, "more": more}) if fits else message

    def layout(self, label: str) -> Layout:
        """Read a label for this case: a silent overlap is the framework's; nodes that the request leaves spare may stay idle."""
        from meshwright.domain.kernels import own_unsaid
        from meshwright.domain.label import parse_layout
        from meshwright.estimate.overlap import overlap_for

        cluster = self.case.cluster
        try:
            layout = parse_layout(
                label,
                num_devices=cluster.num_devices,
                global_batch_sequences=self.case.batch.global_batch_sequences,
                devices_per_node=cluster.devices_per_node,
                model=self.case.model,
                shards_over_context=self.framework.features.shards_over_context,
                overlap=overlap_for(self.case),
                max_idle_devices=self.request.get("spare_nodes", 0) * cluster.devices_per_node,
            )
        except InputError as error:
            raise InputError(self._of_packs(each) for each in error.messages) from None
        features = self.framework.features
        compiled, attention = own_unsaid(
            self.case, features.attentions, compiled=layout.compiled, attention=layout.attention, by_default=features.own_attention
        )
        layout = replace(layout, compiled=compiled, attention=attention)
        return layout if "overlap=" in label else replace(layout, overlap=self.framework.overlap(self.case, layout))


class Draft(Value, frozen=True, kw_only=True):
    """What a request names, as far as it is known: a case, or what there is of one."""

    setup: Setup | None
    """None where something is missing or wrong."""
    found: Mapping[str, Any]
    """framework model cluster batch precision ..., each where it is known."""
    num_devices: int | None
    """Of the cluster, where its size is known."""

    def layout(self, values: Values, faults: Faults, name: str = "layout") -> Layout | None:
        """The layout of a field that holds a label; what is wrong with it is noted, without a case as far as can be known."""
        from meshwright.domain.label import label_faults

        if name not in values:
            return None
        with faults.at(name):
            if self.setup is not None:
                return self.setup.layout(values[name])
            cluster, framework = self.found.get("cluster"), self.found.get("framework")
            per_node = cluster.devices_per_node if cluster is not None and self.num_devices == cluster.num_devices else None
            wrong = label_faults(
                values[name], num_devices=self.num_devices, global_batch_sequences=values.get("global_batch"),
                devices_per_node=per_node, model=self.found.get("model"),
                shards_over_context=framework and framework.features.shards_over_context,
                max_idle_devices=values.get("spare_nodes", 0) * (per_node or 0),
            )
            if wrong:
                raise InputError(wrong)
        return None


def setup(values: Values, faults: Faults, *, runs: bool = True) -> Setup:
    """The case that the values name; every fault in it is raised together with those found before.

    ``runs``: a recipe that the device does not run is a fault, too.
    """
    draft = drafted(values, faults, runs=runs)
    faults.check()
    assert draft.setup is not None, "faults.check() raises where there is no case"
    return draft.setup


def drafted(values: Values, faults: Faults, *, runs: bool = True) -> Draft:
    """The case that the values name, as far as it is known; every fault in it is noted.

    Where no framework is named the default is meant, at its first release from the usual one on that trains the case.
    """
    from meshwright.api.releases import later_release
    from meshwright.catalog import load_model, shrink
    from meshwright.catalog.calibrations import calibration, check_name
    from meshwright.catalog.implementations import implementation
    from meshwright.catalog.recipes import optimizer, precision
    from meshwright.frameworks import default_for, framework

    _require(values, faults)
    request = DEFAULTS | dict(values)
    request.setdefault("framework", default_for(request["task"]))
    found: dict[str, Any] = {}
    with faults.at("framework"):
        found["framework"] = framework(request["framework"])
    if "model" in values:
        with faults.at("model"):
            found["model"] = load_model(values["model"])
    if "model" in found and "layers" in values:
        with faults.at("layers"):
            found["model"] = shrink(found["model"], values["layers"])
    if "framework" in found and "@" not in request["framework"]:
        found["framework"] = found["framework"].asked_for(_layout_words(values), found.get("model"))
    with faults:
        found["cluster"] = _cluster(values, faults)
    with faults.at("lengths"):
        found["samples"] = _samples(values, faults)
        found["batch"] = _batch(values, found["samples"])
    with faults.at("optimizer"):
        found["optimizer"] = optimizer(request["optimizer"])
    with faults.at("implementation"):
        name = values.get("implementation") or (found["framework"].implementation if "framework" in found else None)
        if name is not None:
            found["implementation"] = implementation(name)
    with faults.at("precision"):
        default = found["implementation"].gradient_dtype if "implementation" in found else None
        found["precision"] = precision(request["precision"], values.get("gradient_dtype", default))
        if runs and found.get("cluster") is not None:
            _runs_on(found["precision"], found["cluster"].device)
    with faults.at("calibration"):
        check_name(request["calibration"])
        if found.get("cluster") is not None and {"implementation", "precision"} <= set(found):
            found["calibration"] = calibration(
                request["calibration"], found["cluster"], framework=found["implementation"].family,
                precision=found["precision"].name,
            )
    unknown = faults.failed & {"cluster", "device", "nodes", "devices", "devices_per_node", "spare_nodes"}
    sized = found.get("cluster") is not None and not unknown and bool({"cluster", "nodes", "devices"} & set(values))
    complete = sized and all(found.get(name) is not None for name in _PARTS) and not faults.failed & _OF_A_CASE
    case: Setup | None = None
    if complete:
        with faults:
            case = _case(found, values, request)
        later = later_release(case.framework, case.case) if case is not None and "framework" not in values else None
        if later is not None:
            return drafted({**values, "framework": later}, faults, runs=runs)
    return Draft(
        setup=case, found=found,
        num_devices=found["cluster"].num_devices if sized else None if "devices" in faults.failed else values.get("devices"),
    )


def _layout_words(values: Values) -> str:
    """What is asked of the layout: its label, and pins as words of one."""
    pins = values.get("pin") or {}
    return " ".join([str(values.get("layout", "")), *(f"{knob}{value}" for knob, value in dict(pins).items())])


_PARTS = ("framework", "model", "cluster", "batch", "optimizer", "implementation", "precision", "calibration")
_OF_A_CASE = frozenset({
    "model", "layers", "cluster", "device", "nodes", "devices", "devices_per_node", "global_batch", "sequence", "lengths",
    "max_tokens", "packs", "split_long", "task", "precision", "optimizer", "gradient_dtype", "framework", "implementation",
    "launch", "calibration", "flops_convention", *RATIOS,
})
"""Options without which a case would be another one."""


def _case(found: Mapping[str, Any], values: Values, request: dict[str, Any]) -> Setup:
    """The case of parts that are all there."""
    from meshwright.domain.case import Case
    from meshwright.domain.launch import parse_launch
    from meshwright.domain.launching import launched, learns_beside_adapters
    from meshwright.domain.training import Lora, Training

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
    case = launched(case, parse_launch(values["launch"])) if "launch" in values else case
    if learns_beside_adapters(case.model, training):
        raise fault(
            "launch.tower-adapters", "--task lora: adapters leave a tower frozen, and {model} says trained: true of its own",
            model=case.model.name,
        )
    return Setup(
        case=case, framework=found["framework"].for_case(case), request=_said(request), values=_as_values(request),
        samples=found["samples"],
    )


def check_names(values: Values, faults: Faults) -> None:
    """Note the options that name something which does not exist, whether or not they come to a case.

    For verbs that know the rest of the case only when they have read files.
    """
    from meshwright.api.lengths import read_lengths
    from meshwright.catalog import device, load_cluster
    from meshwright.catalog.calibrations import check_name
    from meshwright.catalog.implementations import implementation
    from meshwright.catalog.recipes import optimizer, precision

    cluster = partial(load_cluster, num_devices=values.get("devices"), nodes=values.get("nodes"))
    looked_up: dict[str, Callable[[Any], object]] = {
        "cluster": cluster, "device": device,
        "precision": precision, "optimizer": optimizer, "implementation": implementation, "calibration": check_name,
    }
    for name, look_up in looked_up.items():
        if name in values:
            with faults.at(name):
                look_up(values[name])
    if "lengths" in values and faults.messages:  # without another fault they are read when there is a case
        with faults.at("lengths"):
            read_lengths(values["lengths"])


def _runs_on(recipe: Precision, device: Device) -> None:
    """Refuse a recipe that the device does not run, with those that it does."""
    from meshwright.catalog.recipes import precision, precisions

    if not recipe.runs_on(device):
        able = [name for name in precisions() if precision(name).runs_on(device)]
        raise fault(
            "request.precision", "{device} does not run {recipe}; it runs {able}",
            device=device.name, recipe=recipe.name, able=able or "none of the recipes",
        )


def _require(values: Values, faults: Faults) -> None:
    """What no case can do without."""
    given = set(values) | faults.failed
    if "model" not in given:
        faults.add("request.model", "MODEL is missing: a catalogue name, or the path of a config.json or model YAML")
    if not {"cluster", "device"} & given:
        faults.add("request.cluster", "the cluster is missing: --cluster NAME, or --device NAME with --nodes or --devices")
    if "global_batch" not in given and not {"lengths", "packs"} <= given:
        faults.add("request.batch", "--global-batch is missing: sequences per optimizer step")
    if not {"sequence", "lengths"} & given:
        faults.add("request.sequence", "--sequence is missing: tokens of a sequence")


def _cluster(values: Values, faults: Faults) -> Cluster | None:
    """The cluster by name or by device, at its own size or at the size asked for."""
    from meshwright.catalog import cluster_for, device, load_cluster

    size = {"num_devices": values.get("devices"), "nodes": values.get("nodes")}
    if "cluster" in values:
        for other in ("device", "devices_per_node"):
            if other in values:
                option = f"--{other.replace('_', '-')}"
                faults.add("request.either", "--cluster already says it: leave out {option}", path=option, option=option)
        with faults.at("cluster"):
            named = load_cluster(values["cluster"])
            return load_cluster(values["cluster"], **size) if any(size.values()) else named
        return None
    if "device" not in values:
        return None
    if "," in values["device"] or "+" in values["device"]:
        faults.add("request.mixed", "mixed devices are not supported: plan each kind of device on its own", path="--device")
        faults.failed.add("device")
        return None
    if not any(size.values()) and not {"nodes", "devices"} & faults.failed:
        faults.add("request.size", "--nodes or --devices is missing: how many", path="--device")
    with faults.at("device"):
        device(values["device"])
    if "device" in faults.failed:
        return None
    return cluster_for(values["device"], **size, devices_per_node=values.get("devices_per_node"))


def _samples(values: Values, faults: Faults) -> Samples | None:
    """The samples of the file of lengths, as long as they may be."""
    if "lengths" not in values:
        for name in ("max_tokens", "packs", "split_long"):
            if values.get(name) and "lengths" not in faults.failed:
                option = f"--{name.replace('_', '-')}"
                faults.add("request.lengths", "{option} needs --lengths: a file of lengths of samples", option=option)
        return None
    if "samples" in values:
        return cast("Samples", values["samples"])
    from meshwright.api.lengths import read_lengths
    from meshwright.api.packs import samples_of

    lengths = read_lengths(values["lengths"])
    if "sequence" in faults.failed:
        return None
    return samples_of(lengths, values.get("sequence"), split_long=bool(values.get("split_long")))


def _batch(values: Values, samples: Samples | None) -> Batch | None:
    """The batch: so many sequences, or so many samples in packs, or so many packs, whatever they hold."""
    from meshwright.domain.training import Batch

    if samples is None and not {"lengths", "packs"} & set(values) and {"global_batch", "sequence"} <= set(values):
        return Batch(global_batch_sequences=values["global_batch"], sequence_tokens=values["sequence"])
    if samples is None:
        return None
    from meshwright.api.packs import batch_of_packs, batch_of_samples

    most = values.get("max_tokens", samples.longest_tokens)
    if most < samples.longest_tokens:
        raise fault("request.max-tokens", "{most:,} is less than the longest sample of {longest:,} tokens: no pack would hold it",
                    path="--max-tokens", most=most, longest=samples.longest_tokens)
    if "global_batch" in values:
        return batch_of_samples(samples, values["global_batch"], most, values.get("packs"))
    return batch_of_packs(samples, values["packs"], most) if "packs" in values else None


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


_NOT_SAID = frozenset({"samples", "request", "json", "save", "force", "compare", "layout", "guided"})
