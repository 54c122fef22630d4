"""Runs cases in fresh ranks and asks ``diagnose`` what it makes of what they left."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.faults.worker import Payload
from meshwright.domain.attention import Attention
from meshwright.domain.label import parse_layout
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.engine.launch import Task, launch
from meshwright.engine.request import Options, Request
from meshwright.errors import NoAnswerError

if TYPE_CHECKING:
    from benchmarks.faults.draw import Case
    from meshwright.diagnose.finding import Finding
    from meshwright.engine.nursery import Nursery

STEP_S = 0.36
"""Of the emulated device, without what a pipeline idles."""
STEPS, WARMUP = 9, 3
LIMIT_S = 60.0
HANG_LIMIT_S = 10.0
MICROBATCHES = {"pp": 8, "": 1}
LAYERS = 2
TOKENS = 32
TARGET = "benchmarks.faults.worker:run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said of a case."""

    case: Case
    findings: tuple[Finding, ...]
    ended: str
    """How the run ended where it did not end well."""

    @property
    def first(self) -> Finding | None:
        """The first finding above advice."""
        return next((each for each in self.findings if each.severity != "advice"), None)


def request_of(case: Case, record: Path, steps: int = STEPS) -> Payload:
    """The run of a case: a decoder of two layers, or one for each stage, on the emulated device."""
    pipeline = "pp" in case.layout
    stages = int(case.layout[case.layout.index("pp") + 2]) if pipeline else 1
    replicas = int(case.layout[case.layout.index("dp") + 2]) if "dp" in case.layout else 1
    layers, batches = (stages, MICROBATCHES["pp"]) if pipeline else (LAYERS, MICROBATCHES[""])
    attention = Attention(num_heads=4, num_key_value_heads=4, head_dim=8)
    model = Model(
        name="tiny", hidden=32, vocabulary=64, kinds=(LayerKind(attention=attention, feed_forward=Mlp(width=64)),),
        pattern=(0,) * layers,
    )
    layout = parse_layout(f"{case.layout} mb1", num_devices=case.ranks, global_batch_sequences=replicas * batches)
    options = Options(steps=steps, warmup_steps=WARMUP, saved=False, record=str(record))
    request = Request(model=model, layout=layout, sequence_tokens=TOKENS, options=options)
    return Payload(request=request, case=case, forward_s=STEP_S / (3 * layers // stages * batches))


def run(case: Case, nursery: Nursery | None = None, *, keep: Path | None = None, steps: int = STEPS) -> Told:
    """One case, from its ranks' start to what is said of it."""
    with tempfile.TemporaryDirectory(prefix="meshwright-fault-") as name:
        folder = keep or Path(name)
        payload, ended = request_of(case, folder, steps), ""
        limit = HANG_LIMIT_S if case.kind == "missing-collective" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                start = None if nursery is None else nursery.start
                launch(Task(target=TARGET, payload=payload), case.ranks, limit_s=limit or LIMIT_S, start=start)
            except NoAnswerError as error:
                ended = str(error)
        return Told(case=case, findings=diagnosed(folder), ended=ended)


def diagnosed(folder: Path) -> tuple[Finding, ...]:
    """What ``meshwright diagnose FOLDER`` finds."""
    from meshwright.diagnose.diagnosis import diagnose
    from meshwright.diagnose.run import Run
    from meshwright.readers.formats import observe

    return diagnose(Run(observations=observe([folder]).observations)).findings
