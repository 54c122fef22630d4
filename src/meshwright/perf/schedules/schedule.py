"""What the planner needs to know about a pipeline schedule, as one value."""

from typing import Protocol

from msgspec import Struct

from meshwright.perf.schedules.operations import Order
from meshwright.perf.schedules.values import Bools, Count, Floats, Ints, Value


class BubbleFormula(Protocol):
    """Idle seconds of the busiest stage; times are per microbatch and whole stage."""

    def __call__(
        self,
        *,
        forward_s: Value,
        backward_input_s: Value,
        backward_weight_s: Value,
        fill_s: Value,
        hop_s: Value,
        num_stages: Count,
        num_microbatches: Count,
        num_chunks: Count,
    ) -> Floats:
        """Seconds, of the broadcast shape of the arguments that matter."""
        ...


class InFlightFormula(Protocol):
    """Peak number of chunk activations on a stage."""

    def __call__(self, *, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
        """Counts, of the broadcast shape of the arguments that matter."""
        ...


class HeldFormula(Protocol):
    """Activations of each chunk that a stage holds at once, at moments of which one is the fullest."""

    def __call__(self, *, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
        """Counts, ``[moment, chunk, *shape]``, of the broadcast shape of the arguments."""
        ...


class HopsFormula(Protocol):
    """Point-to-point transfers on the critical path."""

    def __call__(self, *, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
        """Counts, of the broadcast shape of the arguments that matter."""
        ...


class MessagesFormula(Protocol):
    """Messages that a stage sends per microbatch."""

    def __call__(self, *, stage: Count, num_stages: Count, num_chunks: Count) -> Ints:
        """Counts, of the broadcast shape of the arguments that matter."""
        ...


class AcceptsRule(Protocol):
    """Whether the frameworks run the schedule with these counts."""

    def __call__(self, *, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Bools:
        """True where it runs."""
        ...


class OrderBuilder(Protocol):
    """The operation order, spelled out."""

    def __call__(self, num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
        """Raise ValueError for counts that the schedule does not have."""
        ...


class Schedule(Struct, frozen=True, kw_only=True):
    """One pipeline schedule: closed forms for ranking, an order for the simulation.

    `splits_backward`: weight gradients may run later than input gradients.
    `in_flight`: peak count between forward and (input) backward; `in_flight_until_weight`: between
    forward and weight gradient, for what the weight gradient needs (the same where not split).
    `held_until_weight`: the latter by chunk, for chunks that are not alike; None where a stage has one.
    """

    name: str
    splits_backward: bool
    accepts: AcceptsRule
    bubble_s: BubbleFormula
    in_flight: InFlightFormula
    in_flight_until_weight: InFlightFormula
    exposed_hops: HopsFormula
    messages: MessagesFormula
    order: OrderBuilder
    held_until_weight: HeldFormula | None = None
