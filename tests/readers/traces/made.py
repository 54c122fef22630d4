"""Traces made for tests: what runs when, as text in the layouts that profilers and tools write."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

NAMES = {"compute": "gemm", "communication": "ncclDevKernel_AllReduce_Sum(x)", "memcpy": "Memcpy HtoD", "memset": "Memset"}
CATEGORIES = {"compute": "kernel", "communication": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
LAYOUTS = ("compact", "spaced", "indented", "kineto", "bare", "events first")


@dataclass
class Text:
    """What a reader asks of a source, from memory."""

    content: bytes
    shown: str = "trace.json"
    broken: list[str] = field(default_factory=list)

    @contextmanager
    def open(self):
        yield io.BytesIO(self.content)


def kernel(start: float, duration: float, kind: str = "compute", correlation: int = 0, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": CATEGORIES[kind], "name": NAMES[kind], "pid": 0, "tid": 7, "ts": start, "dur": duration,
            "args": {"device": 0, "stream": 7, "correlation": correlation, **args}}


def launch(start: float, correlation: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start, "dur": 1,
            "args": {"correlation": correlation, **args}}


def host(start: float, duration: float, name: str, category: str = "user_annotation", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration, "args": args}


def written(events: list[dict[str, Any]], layout: str = "compact", **beside: Any) -> bytes:
    """A file with these events and what stands beside them."""
    if layout == "kineto":
        inner = ",\n".join("  {\n    " + json.dumps(each)[1:-1].replace(', "ts"', ',\n    "ts"') + "\n  }" for each in events)
        head = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in beside.items())
        return f'\n{{\n  "schemaVersion": 1,\n{head}  "traceEvents": [\n{inner}\n  ],\n  "traceName": "/tmp/x.json"\n}}\n'.encode()
    if layout == "bare":
        return json.dumps(events).encode()
    if layout == "events first":
        return json.dumps({"traceEvents": events, **beside}).encode()
    whole = {**beside, "traceEvents": events, "end": [{"a": 1}, {"ph": "X"}]}
    separators = (",", ":") if layout == "compact" else None
    return json.dumps(whole, indent=2 if layout == "indented" else None, separators=separators).encode()
