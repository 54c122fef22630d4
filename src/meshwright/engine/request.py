"""What is to be run: a model, a layout and a batch, with what may be chosen beside them. Plain values; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model

Backend = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is made and what it shows."""

    backend: Backend = "cpu"
    steps: int = 5
    """Measured steps."""
    warmup_steps: int = 2
    """Steps before them, which no figure counts."""
    seed: int = 0
    packed: bool = False
    """Sequences are packed documents, which do not see each other."""
    compiled: bool = False
    """Layers go through torch.compile."""
    threads: int = 1
    """Threads of one rank on the CPU."""
    saved: bool = True
    """Activation memory is measured by hooks on saved tensors, in a warm-up step of its own."""
    profiled: bool = False
    """One further step runs under the profiler: exposed communication."""
    trace: str = ""
    """Folder for Kineto traces, one file per rank; empty: none."""
    record: str = ""
    """Folder for what each rank notes of its steps as they go; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One run."""

    model: Model
    layout: Layout
    sequence_tokens: int
    bf16: bool = False
    """Products in BF16, parameters, gradients and sums in FP32."""
    flops_per_step: float = 0.0
    """Model FLOPs of a step, by the convention that ``flops_convention`` names."""
    flops_convention: str = "causal"
    peak_flops_per_s: float | None = None
    """Of one device in the type that it computes in; None: unknown, then no MFU."""
    options: Options = Options()

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        layout = self.layout
        return layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches * self.sequence_tokens
