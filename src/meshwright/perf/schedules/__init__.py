"""Pipeline schedules: closed forms that rank, orders and an event simulation that tell the truth."""

from meshwright.perf.schedules.bound import lower_bound_s
from meshwright.perf.schedules.even import even_bubble_ratio
from meshwright.perf.schedules.held import held_vectors
from meshwright.perf.schedules.known import SCHEDULES
from meshwright.perf.schedules.microbatch_group import accepts_group, microbatch_group
from meshwright.perf.schedules.operations import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    KIND_NAMES,
    WEIGHT,
    Order,
)
from meshwright.perf.schedules.orders import ORDERS, NamedOrder
from meshwright.perf.schedules.schedule import Schedule
from meshwright.perf.schedules.simulation import makespans, simulate
from meshwright.perf.schedules.split import bubble_parts, bubble_split
from meshwright.perf.schedules.step import bubble_ratio_of_step, bubble_ratio_of_work, step_s
from meshwright.perf.schedules.timeline import Timeline
from meshwright.perf.schedules.together import Pipeline, makespans_of

__all__ = [
    "BACKWARD",
    "BACKWARD_INPUT",
    "FORWARD",
    "KIND_NAMES",
    "ORDERS",
    "SCHEDULES",
    "WEIGHT",
    "NamedOrder",
    "Order",
    "Pipeline",
    "Schedule",
    "Timeline",
    "accepts_group",
    "bubble_parts",
    "bubble_ratio_of_step",
    "bubble_ratio_of_work",
    "bubble_split",
    "even_bubble_ratio",
    "held_vectors",
    "lower_bound_s",
    "makespans",
    "makespans_of",
    "microbatch_group",
    "simulate",
    "step_s",
]
