"""What a profiler's trace says of one rank. Times are seconds on the rank's own clock, from the beginning of the file."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from meshwright.value import Value


class TraceStep(Value, frozen=True, kw_only=True):
    """One annotated step, on the host and, where the trace has it, on the device."""

    number: int
    start_s: float
    end_s: float
    device_start_s: float | None = None
    device_end_s: float | None = None


class KernelSum(Value, frozen=True, kw_only=True):
    """All kernels of one name."""

    name: str
    kind: str
    """``compute``, ``communication``, ``memcpy`` or ``memset``."""
    count: int
    total_s: float


class Collective(Value, frozen=True, kw_only=True):
    """One communication kernel; where only the host was recorded, one collective that the host itself ran (gloo)."""

    operation: str
    """``all-reduce``, ``all-gather``, ``reduce-scatter``, ``all-to-all``, ``broadcast``, ``send-recv`` or empty."""
    start_s: float
    end_s: float
    exposed_s: float
    """Of it, beside no compute kernel."""
    group: str = ""
    """The process group's name and description, as the trace has them."""
    ranks: tuple[int, ...] = ()
    sequence: int | None = None
    message_bytes: int | None = None


class RankSplit(Value, frozen=True, kw_only=True):
    """Where the time of a window of one rank's device went; the parts add up to the window.

        window = compute + exposed communication + exposed copies + idle
    """

    file: str = ""
    rank: int | None = None
    step: int | None = None
    stage: int | None = None
    window: str = ""
    """Which time it is about, in words: ``6 annotated steps on the device``."""
    window_s: float
    compute_s: float
    """Union of kernels that do not communicate; all of them where none was recognised that does."""
    communication_s: float | None
    """Union of those that do; None where none was recognised in a world of several ranks."""
    exposed_communication_s: float | None
    exposed_copies_s: float = 0.0
    """Copies and memory sets beside neither."""
    memory_sets_s: float = 0.0
    """What memory sets would add to the union of compute kernels: TraceLens counts them as computing."""
    idle_s: float = 0.0
    bubble_s: float | None = None
    """Of the idle or receiving time, what the trace itself calls the pipeline's."""
    start_s: float = 0.0
    """When the window begins."""
    ranks: tuple[int, ...] = ()
    """Of several ranks together (a pipeline stage): then each part is the longest among them, and parts do not add up."""


class RankTrace(Value, frozen=True, kw_only=True):
    """One rank's trace."""

    file: str
    format: str
    split: RankSplit
    """From the first to the last thing that ran on the device; a window of no length where nothing did."""
    windows: tuple[RankSplit, ...] = ()
    """The same over other windows that people ask for: the steps annotated on the device, all steps but the last."""
    rank: int | None = None
    world: int | None = None
    device: str = ""
    steps: tuple[TraceStep, ...] = ()
    by_step: tuple[RankSplit, ...] = ()
    idle: Mapping[str, float] = field(default_factory=dict)
    """Why the device idled -> seconds: ``data``, ``host``, ``launch``, ``sync``, ``kernel``, ``other``; in sum the idle time."""
    host: Mapping[str, float] = field(default_factory=dict)
    """What the host did -> seconds, overlapping: ``dataloader``, ``sync``, ``gc``, ``checkpoint``, ``compile``, ``gloo``."""
    exposed_by_group: Mapping[str, float] = field(default_factory=dict)
    """Process group -> exposed seconds; an empty name where the trace does not name it; groups may be exposed at the same time."""
    collectives: tuple[Collective, ...] = ()
    kernels: tuple[KernelSum, ...] = ()
    """The longest by sum, a hundred at most."""
    num_kernels: int = 0
    num_communication_kernels: int = 0
    kernels_s: float = 0.0
    """Sum of all kernels, those at the same time as well."""
    small_kernels_s: float = 0.0
    """Sum of compute kernels under 10 us."""
    median_kernel_s: float | None = None
    num_by_unit: Mapping[str, int] = field(default_factory=dict)
    """Execution unit -> kernels, where the format says: ``AI_CORE``, ``AI_VECTOR_CORE``."""
    matrix_unit_ratio: float | None = None
    """Share of compute kernels' time in which the matrix unit worked, where the format counts it."""
    events: int = 0
    """Everything in the file, by count."""
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Process group -> its ranks, where the trace lists them."""
    notes: tuple[str, ...] = ()
    complete: bool = True
    """Whether the file was read to its proper end."""
