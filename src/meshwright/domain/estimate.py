"""What comes out: terms, an estimate per layout, a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from meshwright.domain.uncertainty import expected_s
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout

Grade = Literal["measured", "interpolated", "calibrated", "kin", "analytic"]
"""``calibrated`` on runs of this device under this framework; ``kin``: borrowed from other devices or frameworks."""


class Term(Value, frozen=True, kw_only=True):
    """A number that knows where it comes from."""

    name: str
    value: float
    unit: str
    formula: str
    """Dotted name of the function that gave it."""
    grade: Grade = "analytic"


class StageMemory(Value, frozen=True, kw_only=True):
    """Bytes on the fullest rank of one stage."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    temporary: float
    overhead: float
    """Fragmentation, context and communicators: what is reserved but not allocated by tensors."""

    @property
    def allocated_bytes(self) -> float:
        """Peak of the tensors."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.temporary

    @property
    def reserved_bytes(self) -> float:
        """What the device must offer."""
        return self.allocated_bytes + self.overhead


class HostMemory(Value, frozen=True, kw_only=True):
    """Bytes of the host memory of the fullest node, by what they are for."""

    offload: float
    """Optimizer states that the layout keeps in host memory."""
    pinned: float
    """Gradients of those states, in buffers that the device reads and writes."""
    checkpoint: float
    loader: float
    """What is known of data loading apart from the processes."""
    other: float
    """The processes themselves."""

    @property
    def needed_bytes(self) -> float:
        """Without what an asynchronous checkpoint stages: a synchronous one does without."""
        return self.offload + self.pinned + self.loader + self.other

    @property
    def total_bytes(self) -> float:
        """All parts together."""
        return self.needed_bytes + self.checkpoint


class Stage(Value, frozen=True, kw_only=True):
    """One pipeline stage: its layers, memory, and seconds per micro-batch."""

    stage: int
    layers: int
    parameters: int
    memory: StageMemory
    forward_s: float
    backward_s: float
    chunk_layers: tuple[int, ...] = ()
    """Layers of each chunk, in the order in which a micro-batch passes them."""


class TimeSplit(Value, frozen=True, kw_only=True):
    """Exposed seconds on the busiest stage; the parts sum to the step."""

    compute_s: float
    tensor_parallel_s: float
    context_parallel_s: float
    expert_parallel_s: float
    pipeline_exposed_s: float
    bubble_s: float
    data_parallel_exposed_s: float
    optimizer_s: float
    host_s: float

    def total_s(self) -> float:
        """The step."""
        return (
            self.compute_s + self.tensor_parallel_s + self.context_parallel_s + self.expert_parallel_s
            + self.pipeline_exposed_s + self.bubble_s + self.data_parallel_exposed_s + self.optimizer_s + self.host_s
        )


class Interval(Value, frozen=True, kw_only=True):
    """Where the measured figure lies with probability ``level``, judged by runs that the fit had not seen."""

    level: float
    step_s: tuple[float, float]
    memory_peak_bytes: tuple[float, float]
    memory_reserved_bytes: tuple[float, float]
    """Of the distribution whose mass below the capacity is the probability that the layout fits."""


class Stall(Value, frozen=True, kw_only=True):
    """The second of two times that a layout takes: what it takes in the runs whose pipeline messages stall."""

    probability: float
    step_s: float
    either_s: tuple[float, float] | None
    """The interval over both: it holds as large a share of all runs as ``Estimate.interval`` of those that do not stall."""


class Estimate(Value, frozen=True, kw_only=True):
    """One layout, predicted. Names are those of the contract; sizes in bytes, times in seconds, ratios 0..1."""

    label: str
    layout: Layout
    fits: bool
    calibrated: bool
    memory_fit_probability: float
    fit_probability: float
    step_s: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    samples_per_s: float
    model_flops_per_s_per_device: float
    hardware_flops_per_s_per_device: float
    mfu_ratio: float
    hfu_ratio: float
    bubble_ratio: float
    bubble_formula_ratio: float
    """Share of the pipeline's time that stages of equal time would idle, by the schedule's formula."""
    linearity_ratio: float | None
    linearity_baseline_devices: int | None
    memory_peak_bytes: float
    memory_reserved_bytes: float
    memory_upper_bytes: float
    memory_capacity_bytes: float
    host_memory_per_node_bytes: float
    peak_stage: int
    stages: tuple[Stage, ...]
    time: TimeSplit
    calibration: str
    flops_convention: str
    peak_flops_per_s: float
    """The dense peak that MFU is relative to."""
    peak_dtype: str
    terms: tuple[Term, ...] = ()
    """The figures behind the figures, in the order in which they are explained."""
    grades: Mapping[str, Grade] | None = None
    interval: Interval | None = None
    stall: Stall | None = None
    """None where messages cannot stall by chance, or where it would not be told from the usual error."""
    host_memory_bytes: HostMemory | None = None
    """``host_memory_per_node_bytes`` by part."""
    linearity_baseline_label: str | None = None
    """The layout that linearity compares with."""
    chance_s: float = 0.0
    """What stalls by chance add to the step on average (``perf.stalls.chance_stall_s``), told apart or not."""
    experts: bool = True
    """Whether its model has, or may have, experts (``domain.layout.overlapping``)."""

    @property
    def mean_step_s(self) -> float:
        """The step on average over the times that runs of the layout take (``stall``); ``step_s`` where there is one."""
        return self.step_s + self.chance_s

    @property
    def expected_step_s(self) -> float:
        """The mean step with the risk that it does not fit: what plans are ranked by (``domain.uncertainty.expected_s``)."""
        return float(expected_s(self.mean_step_s, self.memory_fit_probability))

    @property
    def mean_idle_ratio(self) -> float:
        """Share of the step in which a stage waits, on average over the stages; ``bubble_ratio`` is the busiest one's wait."""
        busy = [self.layout.num_microbatches * (stage.forward_s + stage.backward_s) for stage in self.stages]
        return self.bubble_ratio + (max(busy) - sum(busy) / len(busy)) / self.step_s

    @property
    def effective_tokens_per_s_per_device(self) -> float:
        """Throughput without bubble, exposed communication and host: the ceiling of every change to the layout.

            (tokens per s and device) step / (compute + optimizer)

        Units:   tokens/s of a device.
        Source:  guide 003:30 (effective throughput leaves out bubble and communication).
        """
        return self.tokens_per_s_per_device * self.step_s / (self.time.compute_s + self.time.optimizer_s)


class Unmet(Value, frozen=True, kw_only=True):
    """A constraint that nothing satisfies: what was demanded, what the bound is, and what would close the gap."""

    constraint: str
    demand: float
    bound: float
    unit: str
    terms: Mapping[str, float]
    levers: tuple[str, ...]

    @property
    def gap(self) -> float:
        """Demand minus bound, in the unit."""
        return self.demand - self.bound


class Fits(Value, frozen=True, kw_only=True):
    """The layout satisfies every constraint."""

    headroom_bytes: float


class Infeasible(Value, frozen=True, kw_only=True):
    """Nothing fits, and why. An ordinary result, not an exception."""

    unmet: tuple[Unmet, ...]


Verdict = Fits | Infeasible
