"""This machine as a cluster of the cost model: as its profile says it, as a file says it, and as the catalogue guesses it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for, device, devices, load_cluster
from meshwright.engine.devices import count_devices, device_name
from meshwright.engine.launch import cores_here
from meshwright.engine.profile.machine import host_memory_bytes, processor, this_machine, torch_version
from meshwright.errors import Message, NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.cluster import Cluster
    from meshwright.engine.request import Backend

KIB = 1024


def machine_name(backend: Backend) -> str:
    """What runs of this machine are known by: processor or accelerator, and the release of PyTorch.

    Errors:  InputError where there is no such device.
    """
    if backend == "cpu":
        return f"{processor()}, {cores_here()} cores, torch {torch_version()}"
    if not count_devices():
        raise fault("here.devices", "PyTorch reaches no CUDA device on this machine", path="--backend")
    return f"{count_devices()} x {device_name()}, torch {torch_version()}"


def check_devices(ranks: int, backend: Backend) -> None:
    """Refuse more ranks than accelerators; more ranks than cores only wait for each other."""
    if backend == "cuda" and ranks > count_devices():
        raise fault("here.ranks", "{ranks} ranks need a device each, and this machine has {devices}", path="--ranks",
                    ranks=ranks, devices=count_devices())


def on_one_host(cluster: Cluster, ranks: int) -> Cluster:
    """So many devices of a cluster in one node, which is where ranks are started."""
    return replace(cluster, num_devices=ranks, devices_per_node=ranks, scale_up_devices=ranks)


def by_file(name_or_path: str, backend: Backend, ranks: int) -> Cluster:
    """A cluster of a file, or one or a device of the catalogue.

    Errors:  InputError where its devices are not of the sort that the ranks run on.
    """
    known = name_or_path in devices()
    cluster = cluster_for(name_or_path, num_devices=1) if known else load_cluster(name_or_path)
    if (cluster.device.family == "cpu") != (backend == "cpu"):
        raise fault("here.sort", "{name} is made of {device}, and ranks run on {backend}: nothing could be compared",
                    path="--cluster", name=cluster.name, device=cluster.device.name, backend=backend)
    return on_one_host(cluster, ranks)


def by_catalogue(backend: Backend, ranks: int) -> Cluster | None:
    """What the catalogue knows of such a machine before anything is measured; None where it does not know the device."""
    if backend == "cpu":
        return on_one_host(cluster_for("cpu", num_devices=1), ranks)
    spelling = "-".join(device_name().lower().split())
    for known in devices():
        each = device(known)
        if spelling in {word.lower() for word in (each.name, *each.aliases)}:
            return on_one_host(cluster_for(known, num_devices=1), ranks)
    return None


def by_profile(
    folder: Path, backend: Backend, ranks: int, *, quick: bool, write: Callable[[str, str], None],
    tick: Callable[[str, float, float], None] | None,
) -> Cluster:
    """The profile in a folder, measured first where there is none; an interrupted one goes on where it stopped.

    ``write(path, text)`` writes a file whole or not at all.
    """
    from meshwright.engine.profile.clusterfile import cluster_text
    from meshwright.engine.profile.run import Asked, measured
    from meshwright.engine.profile.statistics import TOO_NOISY_RATIO

    path = folder / f"cluster-{ranks}{'-quick' if quick else ''}.yaml"
    samples = path.with_suffix(".samples.jsonl")
    if path.exists() and samples.exists():
        _same_machine(samples, backend, ranks)
    if not path.exists():
        asked = Asked(ranks=ranks, kind=backend, quick=quick, minutes=None, samples=samples)
        with warnings.catch_warnings():  # more ranks than cores: the report says so once
            warnings.simplefilter("ignore", UserWarning)
            profile = measured(asked, None if tick is None else lambda done, total: tick("micro-benchmarks", done, total))
        if profile.noise_ratio > TOO_NOISY_RATIO:
            template = (
                "the machine is too noisy: blocks of products took up to {ratio:.1f} times as long as the best of them "
                "({limit:g} is bearable); called again, the worst are measured again"
            )
            raise NoAnswerError(Message("here.noisy", template, {"ratio": profile.noise_ratio, "limit": TOO_NOISY_RATIO}))
        write(str(path), cluster_text(profile.samples, profile.machine, name=f"this-machine-{ranks}"))
    return by_file(str(path), backend, ranks)


def _same_machine(samples: Path, backend: Backend, ranks: int) -> None:
    """Refuse a profile of another machine."""
    from meshwright.engine.profile.run import THREADS
    from meshwright.engine.profile.store import read_store

    here = this_machine(backend, ranks=ranks, ranks_per_node=ranks, threads=THREADS)
    differences = read_store(samples)[0].differences(here)
    if differences:
        raise fault("here.other", "holds the profile of another machine: {differences}; choose another --out",
                    path=str(samples), differences=", ".join(differences))


def by_nothing(backend: Backend, ranks: int) -> Cluster:
    """The catalogue's guess, or a refusal.

    Errors:  InputError where the catalogue does not know the device.
    """
    cluster = by_catalogue(backend, ranks)
    if cluster is None:
        raise fault("here.device", "{name} is not in the catalogue: name a cluster file with --cluster",
                    path="--backend", name=device_name())
    return cluster


def free_memory_bytes() -> int | None:
    """Memory of this host that programs may still take; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = next((int(line.split()[1]) * KIB for line in lines if line.startswith("MemAvailable:")), None)
    return None if free is None else min(free, host_memory_bytes())
