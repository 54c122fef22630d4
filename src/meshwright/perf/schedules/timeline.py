"""The result of a simulation: when each operation ran, and what each stage held."""

from msgspec import Struct

from meshwright.perf.schedules.values import Floats, Ints


class Timeline(Struct, frozen=True, kw_only=True, eq=False):
    """One simulated step.

    Operation arrays run stage by stage, each stage in its own order: `stage`, `chunk`,
    `microbatch`, `kind` (operations.KIND_NAMES), `start_s`, `end_s`, and `held`, the activation
    units that the stage holds while the operation runs. Per stage: `busy_s`, `bubble_s` =
    makespan - busy, `peak_held`.
    """

    stage: Ints
    chunk: Ints
    microbatch: Ints
    kind: Ints
    start_s: Floats
    end_s: Floats
    held: Floats
    makespan_s: float
    busy_s: Floats
    bubble_s: Floats
    peak_held: Floats
