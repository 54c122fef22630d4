"""What was fitted as a cluster file: YAML that people read and ``--cluster FILE`` takes. Pure text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for
from meshwright.catalog import provenance as provenance_named
from meshwright.documents.quoting import yaml_scalar
from meshwright.engine.profile.fit import fit
from meshwright.errors import fault
from meshwright.outputs import SEAL, sealed
from meshwright.text import visible
from meshwright.units import FACTORS
from meshwright.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.catalog.figures import Provenance
    from meshwright.domain.measured import TimedCollective, TimedCore, TimedProduct
    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.fitted import BenchFit, Fitted, FittedMachine
    from meshwright.engine.profile.machine import Machine

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
NO_TEXT = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
"""Words that YAML reads as something else."""
LONGEST = 400
"""Characters of a text of the machine that are kept."""
MARK = "# A cluster as `meshwright profile` measured it"
"""How a file of this module begins."""


def cluster_text(samples: Sequence[Sample], machine: Machine, *, name: str) -> str:
    """The text of a cluster file that says what the samples say.

    Errors:  ``InputError`` for a name that is none, and where nothing was timed that a cluster file needs.
    """
    if not NAME.fullmatch(name):
        raise fault("profile.name", "{name!r} is no name: small letters, digits, '.', '_' and '-'", name=name)
    return fit_text(fit(samples, machine, name=name), samples, machine)


def fit_text(found: FittedMachine, samples: Sequence[Sample], machine: Machine) -> str:
    """The text of a cluster file for a fit that is already there; sealed, so that the next profile may renew it."""
    return sealed("\n".join(_lines(found, samples, machine)) + "\n")


def _lines(found: FittedMachine, samples: Sequence[Sample], machine: Machine) -> Iterator[str]:
    cluster, measured = found.cluster, found.cluster.measured
    assert measured is not None, "a fit knows what was measured"
    device, name = cluster.device, _key(cluster.name)
    base, usual = provenance_named("device", found.base), provenance_named("cluster", _shape_of(found.base))
    software = f"meshwright {__version__}, torch {machine.torch}, {machine.threads} threads a rank"
    said = f"profile of {machine.host}, {machine.date}: {machine.name}, {machine.ranks} ranks at once, {software}"
    yield f"{MARK}. Every figure: value, unit, source; what was not measured says so."
    yield "# Constants under `measured` stand above priors and calibrations. Products and collectives correct the formulas:"
    yield "# seconds as measured (of products and cores on a processor without the host's part), formula_s as the cost model says"
    yield "# with the figures of this file. As long as nothing is changed here, a profile may renew it:"
    yield f"# {SEAL}"
    yield "sources:"
    yield f"  profile: {_text(said)}"
    yield "devices:"
    yield f"  {_key(device.name)}:"
    yield f"    family: {device.family}"
    yield f"    cluster: {name}"
    yield f"    memory: {_figure(device.memory_bytes / FACTORS['GiB'], 'GiB', 'profile')}"
    yield f"    memory_bandwidth: {_measured(found, 'memory_bandwidth', 'GB/s') or _kept(base, 'memory_bandwidth')}"
    yield "    peak:"
    for dtype in device.peak_flops_per_s:
        yield f"      {dtype}: {_measured(found, f'peak.{dtype}', 'GFLOP/s') or _kept(base, f'peak.{dtype}')}"
    said_units = device.num_units == machine.num_units
    yield f"    units: {_figure(device.num_units, 'count', 'profile') if said_units else _kept(base, 'units')}"
    yield f"    scale_up: {_measured(found, 'scale_up.bandwidth', 'GB/s') or _kept(base, 'scale_up')}"
    yield f"    power: {_kept(base, 'power')}"
    yield f"    synchronous: {str(device.synchronous).lower()}"
    yield "clusters:"
    yield f"  {name}:"
    yield f"    device: {_key(device.name)}"
    yield f"    num_devices: {cluster.num_devices}"
    yield f"    devices_per_node: {cluster.devices_per_node}"
    yield f"    scale_up_devices: {cluster.scale_up_devices}"
    for tier in ("scale_up", "network"):
        yield f"    {tier}:"
        link = getattr(cluster, tier)
        bandwidth = _measured(found, f"{tier}.bandwidth", "GB/s")
        if bandwidth or f"{tier}.bandwidth" in usual:
            yield f"      bandwidth: {bandwidth or _kept(usual, f'{tier}.bandwidth')}"
        yield f"      latency: {_measured(found, f'{tier}.latency', 'us') or _kept(usual, f'{tier}.latency')}"
        for word in ("in_network_reduction", "full_mesh"):
            if getattr(link, word):
                yield f"      {word}: true"
    yield f"    host_memory: {_figure(cluster.host_memory_bytes / FACTORS['GiB'], 'GiB', 'profile')}"
    yield f"    host_link: {_measured(found, 'host_link', 'GB/s') or _kept(usual, 'host_link')}"
    yield f"    node_power: {_kept(usual, 'node_power')}"
    yield "measured:"
    yield f"  {name}:"
    yield f"    date: {_text(machine.date)}"
    yield f"    machine: {_text(machine.name)}"
    yield f"    software: {_text(software)}"
    yield f"    ranks: {machine.ranks}"
    yield f"    samples: {len(samples)}"
    yield f"    load: {_number(max((each.load for each in samples), default=0.0))}"
    if found.not_measured:
        yield f"    # not measured, priors stand: {', '.join(found.not_measured)}"
    yield "    fit:  # errors |predicted / measured - 1| of formulas alone; held out: corrected by the other samples"
    yield from (f"      {each.bench}: {_goodness(each)}" for each in found.benches)
    yield "    constants:"
    for key, each in found.constants.items():
        unit, factor = ("us", 1e6) if key.endswith("_s") else ("count" if key.endswith("_k") else "ratio", 1.0)
        yield f"      {key}: {_figure(each.value * factor, unit, _source(each))}"
    if found.passes:
        yield "    passes:"
        yield from (f"      {kind}: {_figure(each.value, 'ratio', _source(each))}" for kind, each in found.passes.items())
    if found.tiles:
        yield "    tiles:"
        yield from (f"      - {{rows: {each.rows}, columns: {each.columns}, ratio: {_number(each.ratio)}}}" for each in found.tiles)
    if measured.products:
        yield "    products:"
        yield from (f"      - {_product(each)}" for each in measured.products)
    if measured.cores:
        yield "    cores:"
        yield from (f"      - {_core(each)}" for each in measured.cores)
    for tier, timed in (("scale_up", measured.scale_up), ("network", measured.network)):
        if timed:
            yield f"    {tier}:"
            yield from (f"      - {_collective(each)}" for each in timed)


def _shape_of(device: str) -> str:
    """The shape of the catalogue that a device usually comes in."""
    return cluster_for(device).name


def _key(name: str) -> str:
    """A name, in quotes where YAML would read a number, a date or a truth value."""
    return name if name[0].isalpha() and name not in NO_TEXT else yaml_scalar(name)


def _text(text: str) -> str:
    """One line of text, whatever the system called the machine."""
    return yaml_scalar(visible(text)[:LONGEST])


def _number(value: float) -> str:
    """Six figures, in the notation that YAML reads as a number."""
    text = f"{value:.6g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{exponent}"
    return text


def _figure(value: float, unit: str, source: str, *, assumed: bool = False) -> str:
    return f"{{value: {_number(value)}, unit: {unit}, source: {_text(source)}{', assumed: true' if assumed else ''}}}"


def _measured(found: FittedMachine, path: str, unit: str) -> str:
    """A figure that the profile gave, or nothing."""
    each = found.figures.get(path)
    return _figure(each.value / FACTORS[unit], unit, _source(each)) if each else ""


def _source(each: Fitted) -> str:
    return f"measured: {each.words}"


def _kept(provenance: Mapping[str, Provenance], path: str) -> str:
    """A figure of the catalogue that was not measured."""
    each = provenance[path]
    return _figure(each.value, each.unit, f"not measured; {each.source}", assumed=each.source.startswith("assumed"))


def _goodness(each: BenchFit) -> str:
    held_out = "" if each.held_out_ratio is None else f", held_out_error: {_number(each.held_out_ratio)}"
    return (
        f"{{samples: {each.samples}, noise: {_number(each.noise_ratio)}, median_error: {_number(each.median_ratio)}, "
        f"worst_error: {_number(each.worst_ratio)}{held_out}}}"
    )


def _product(each: TimedProduct) -> str:
    return (
        f"{{rows: {each.rows}, columns: {each.columns}, inner: {each.inner}, dtype: {each.dtype}, direction: {each.direction}, "
        f"seconds: {_number(each.seconds)}, formula_s: {_number(each.formula_s)}}}"
    )


def _core(each: TimedCore) -> str:
    return (
        f"{{groups: {each.groups}, tokens: {each.tokens}, head_dim: {each.head_dim}, dtype: {each.dtype}, "
        f"direction: {each.direction}, seconds: {_number(each.seconds)}, formula_s: {_number(each.formula_s)}}}"
    )


def _collective(each: TimedCollective) -> str:
    return (
        f"{{operation: {each.operation}, ranks: {each.ranks}, payload_bytes: {each.payload_bytes}, "
        f"seconds: {_number(each.seconds)}, formula_s: {_number(each.formula_s)}}}"
    )
