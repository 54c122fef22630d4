"""Figures that no run has are none, whichever format says them: too large for any sum, below nothing, a share beyond the whole."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import fields, is_dataclass

import pytest
from tests.readers.log_texts import DEEPSPEED, MEGATRON, NANOTRON, TORCHTITAN
from tests.readers.sources import source
from tests.readers.traces.made import host, kernel, written
from tests.readers.traces.test_ascend import KERNELS, STEPS

from meshwright.errors import InputError
from meshwright.readers.formats import observe

SMI = """timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]
2020/11/12 13:48:11.412, 0, 99 %, 30994 MiB, 250 W
"""
TESTS = "# nThread 1\nall_reduce_perf\n 1024 256 float sum -1 30.0 100.0 187.5 0 30.0 100.0 187.5 0\n"
GROUPS = {"rank": 1, "world_size": 2, "backend": "nccl", "pg_config": [{"pg_name": "0", "pg_desc": "x", "ranks": [0, 1]}]}
TRACE = written([kernel(0, 5), kernel(9, 5), host(0, 20, "ProfilerStep#3", "gpu_user_annotation")], distributedInfo=GROUPS).decode()
SIGNED = ("loss", "last_started", "last_enqueued", "last_completed")
LARGEST, MOST_RANKS = 1e36, 10**7
"""A figure of bounded size in its largest unit; more than any run has."""
HOSTILE = ("-1", "1e308", "9" * 300, "1e30", "-1e30")


def unsound(value, name=""):
    """What of a value cannot be."""
    if is_dataclass(value):
        for each in fields(value):
            yield from unsound(getattr(value, each.name), each.name)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from unsound(each, key)
    elif isinstance(value, tuple):
        for each in value:
            yield from unsound(each, name)
    elif isinstance(value, int | float) and not isinstance(value, bool) and name not in SIGNED:
        share, ranks = name.endswith("_ratio"), name in ("world", "rank", "ranks")
        if not (math.isfinite(value) and 0 <= value < (1.0001 if share else MOST_RANKS + 1 if ranks else LARGEST)):
            yield f"{name} {value!r:.40}"


PLACES = {
    MEGATRON: ("max reserved: 29316.0", "490.0", "15800.0", "(12000.00", "world size: 16"),
    TORCHTITAN: ("13.99%", "314.71", "66.91"), NANOTRON: ("11.4K",), DEEPSPEED: ("fwd: 435.67", "MaxMemAllocated=2.0"),
    STEPS: ("100.5", "49.5", "5,45"), KERNELS.format(ratio="aic_mac_ratio"): ("0.5\n", "20,0,16"),
    TRACE: ('"world_size":2', '"rank":1', '"ranks":[0,1]', '"ts":9', '"dur":5', '"dur":20'),
    SMI: ("99 %", "30994", "250 W"), TESTS: ("100.0", "30.0"),
}
"""Text -> figures of it that are replaced."""


@pytest.mark.parametrize(("text", "figure"), [(text, each) for text, figures in PLACES.items() for each in figures],
                         ids=[each.strip() for figures in PLACES.values() for each in figures])
def test_a_figure_that_cannot_be_is_none(text, figure, tmp_path):
    assert figure in text
    for hostile in HOSTILE:
        content = text.replace(figure, re.sub(r"\d+(?:\.\d+)?", hostile, figure, count=1))
        with suppress(InputError):
            assert not list(unsound(observe([source(tmp_path, content).path]).observations)), hostile
