"""One case: files as they were drawn, what is asked of them, and what is wrong with the answer."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
import resource
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meshwright as mw
from benchmarks.spoiled_runs.spoils import DAMAGED, SECRETS, laid, spoiled
from meshwright.errors import InputError, NoAnswerError
from meshwright.report.compare_runs import compare_report
from meshwright.report.console import show
from meshwright.report.diagnose import told_of
from meshwright.report.redacted import blanked

CPU_S, MEMORY_BYTES = 10.0, 500 * 10**6
BESIDE: tuple[Mapping[str, Any], ...] = (
    {}, {}, {}, {"device": "h100-sxm"}, {"model": "llama3-8b"}, {"window": "2:5"}, {"from_": "megatron"},
    {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 64, "sequence": 4096},
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a case went."""

    index: int
    what: str
    end: str
    faults: tuple[str, ...]
    cpu_s: float
    memory_bytes: int

    @property
    def costs(self) -> tuple[str, ...]:
        """What it took beyond its bounds."""
        slow = (f"{self.cpu_s:.1f} s of the processor",) if self.cpu_s > CPU_S else ()
        return (*slow, f"{self.memory_bytes / 1e6:.0f} MB") if self.memory_bytes > MEMORY_BYTES else slow


def case(index: int, seed: int, texts: Mapping[str, bytes], directory: Path) -> Ended:
    """One drawn case."""
    rng = random.Random(f"{seed}/{index}")
    name = sorted(texts)[index % len(texts)]
    content, how = spoiled(rng, texts[name])
    paths, where = laid(rng, directory, name, content, texts)
    beside = rng.choice(BESIDE)
    redact, both = (rng.random() < 0.4 or "secrets" in how) and where != DAMAGED, rng.random() < 0.2
    what = f"{index} {name}: {', '.join(how)}; {where}; {' '.join(beside)}{' compare' if both else ''}"
    faults: list[str] = []
    base_bytes, began = _fresh_peak(), time.process_time()
    try:
        if both:
            other = directory.with_name(f"{directory.name}-b")
            other.mkdir()
            (other / "original").write_bytes(texts[name])
            _compared([paths[-1], other / "original"], beside, redact, faults)
        else:
            _diagnosed(paths, beside, redact, faults)
        end = "answered"
    except (InputError, NoAnswerError) as error:
        end = f"{type(error).__name__} {error.messages[0].id}"
        faults += [f"message of {len(each)} characters" for each in map(str, error.messages) if len(each) > 2000 or "\n" in each]
    except Exception as error:
        end = "broke"
        last = traceback.extract_tb(error.__traceback__)[-1]
        faults.append(f"{type(error).__name__}: {str(error)[:120]} at {Path(last.filename).name}:{last.lineno}")
    cpu_s, memory_bytes = time.process_time() - began, _peak() - base_bytes
    return Ended(index=index, what=what, end=end, faults=tuple(faults), cpu_s=cpu_s, memory_bytes=memory_bytes)


def _diagnosed(paths: list[Path], beside: Mapping[str, Any], redact: bool, faults: list[str]) -> None:
    rows = paths[0].parent.with_name(f"{paths[0].parent.name}-rows.csv")
    answer = mw.diagnose(mw.DiagnoseRequest(files=paths, redact=redact, **beside))
    document = answer.to_json()
    faults += unsound(document)
    text = _printed(told_of(answer))
    faults += _words(text, document, redact, paths[0].parent)
    with suppress(InputError, NoAnswerError):
        mw.diagnose(mw.DiagnoseRequest(files=paths, rows=rows, force=True, **beside))
        for row in csv.DictReader(io.StringIO(rows.read_text())):
            for key, value in row.items():
                with suppress(ValueError):
                    if not 0 <= float(value) < math.inf:
                        faults.append(f"row: {key} {value[:40]}")


def _compared(runs: list[Path], beside: Mapping[str, Any], redact: bool, faults: list[str]) -> None:
    answer = mw.compare(mw.CompareRequest(runs=runs, redact=redact, **beside))
    document = answer.to_json()
    faults += unsound(document)
    text = _printed(blanked(compare_report(answer)) if redact else compare_report(answer))
    faults += _words(text, document, redact, runs[0].parent)


def _printed(parts: Any) -> str:
    out = io.StringIO()
    show(parts, out, 110)
    return out.getvalue()


def _words(text: str, document: object, redact: bool, directory: Path) -> Iterator[str]:
    said = json.dumps(document, ensure_ascii=False)
    found = re.search(r"(?:\b(?:nan|inf)|(?<!\d)-0(?:\.0+)?) (?:%|s|ms|us|GiB|TFLOP/s)", text)
    if found and found[0] not in said:
        yield f"{found[0]} in the report"
    if len(text) > 100_000:
        yield f"a report of {len(text):,} characters"
    if redact:
        for secret in (*SECRETS, str(directory), directory.name):
            if secret in text:
                yield f"{secret} in the report"
            if secret in said:
                yield f"{secret} in JSON"


def unsound(document: object, key: str = "") -> Iterator[str]:
    """Figures of an answer that cannot be."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from unsound(value, name)
        parts = {name: value or 0.0 for name, value in document.items() if name.endswith("_ratio")} if key == "split" else {}
        if sum(parts.values()) > 1 + 1e-6:
            yield "shares of a step sum to more than one"
    elif isinstance(document, list):
        for value in document:
            yield from unsound(value, key)
    elif isinstance(document, bool) or not isinstance(document, (int, float)):
        return
    elif not math.isfinite(document):
        yield f"{key} is {document}"
    elif key.endswith(("_s", "_bytes", "_ratio", "_device", "devices", "iterations", "steady", "line")) and document < 0:
        if key not in ("step_change_ratio", "t0_s", "t1_s", "predicted_gain_ratio"):
            yield f"{key} is {document:g}"
    elif (key.endswith("_ratio") and document > 1 and key not in ("step_change_ratio",)) or document > 1e25:
        yield f"{key} is {document:g}"


def _fresh_peak() -> int:
    """The memory of this process now, from which its peak counts again."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    with suppress(OSError):
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
