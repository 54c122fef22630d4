"""What nccl-tests write with ``-J``: the same rows as their tables, with devices and, if asked, every iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.observed import Bandwidth, Bandwidths
from meshwright.readers.formats import Format
from meshwright.readers.json_so_far import content, load_json_so_far
from meshwright.readers.loose import amount, mapping, sequence, text
from meshwright.readers.network.nccl_tests import NAMES

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_ROWS = 100_000


def read(source: Source) -> tuple[Bandwidths, ...]:
    """Every row that stands whole, out of place and in place."""
    document, complete = load_json_so_far(content(source).decode("utf-8", "replace"), source.shown)
    top = mapping(document)
    arguments = [text(each) for each in sequence(top.get("args"))]
    operation = next((NAMES[name] for each in arguments if (name := each.rsplit("/", 1)[-1]) in NAMES), "")
    devices = [mapping(each) for each in sequence(mapping(top.get("config")).get("devices") or top.get("devices"))]
    ranks = len({text(each.get("rank")) for each in devices}) or None
    rows = []
    for each in sequence(top.get("results"))[:MAX_ROWS]:
        result = mapping(each)
        size = amount(result.get("size"))
        for key in ("out_of_place", "in_place"):
            block = mapping(result.get(key))
            time = amount(block.get("time", block.get("cpu_time")))
            algorithm, bus = amount(block.get("alg_bw")), amount(block.get("bus_bw"))
            if size is not None and algorithm is not None and bus is not None:
                rows.append(Bandwidth(
                    operation=operation, message_bytes=size, time_s=None if time is None else time * 1e-6, ranks=ranks,
                    algorithm_bytes_per_s=algorithm * 1e9, bus_bytes_per_s=bus * 1e9, in_place=key == "in_place"))
    if not rows:
        return ()
    hosts = {text(each.get("hostname")) for each in devices}
    return (Bandwidths(file=source.shown, format="nccl_tests_json", rows=tuple(rows), ranks=ranks, nodes=len(hosts) or None,
                       notes=() if complete else ("the file breaks off; what stands whole is read",)),)


def _told(sample: bytes) -> bool:
    return sample.lstrip()[:1] == b"{" and b'"bus_bw"' in sample and b'"alg_bw"' in sample


FORMAT = Format(name="nccl_tests_json", says="JSON of nccl-tests (-J)", told=_told, read=read)
