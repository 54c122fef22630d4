"""One step of reinforcement learning: how many samples of which length are generated, scored and trained on, and by what."""

from __future__ import annotations

import math

from meshwright.value import Value


class Responses(Value, frozen=True, kw_only=True):
    """Lengths of responses: a mean and the longest that is allowed.

    Density over 0..L proportional to exp(-a x / L): the law of most entropy with that mean. Where many reach the limit, a < 0.
    """

    mean_tokens: float
    longest_tokens: int

    def quantile_tokens(self, share: float) -> float:
        """The length under which lies this share of the responses.

            x = -L / a log(1 - u (1 - e^-a));   mean = L (1 / a - 1 / (e^a - 1))

        Units:   tokens.
        Holds:   0 < share < 1; a mean between 0 and the longest.
        Source:  inverse of the distribution.
        """
        a, longest = self._slope, float(self.longest_tokens)
        if abs(a) < FLAT:
            return share * longest
        return -longest / a * math.log1p(-share * -math.expm1(-a))

    @property
    def _slope(self) -> float:
        """The a of the mean, by bisection."""
        wanted, low, high = self.mean_tokens / self.longest_tokens, -STEEP, STEEP
        high = max(high, 2.0 / wanted)
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            mean = 0.5 if abs(middle) < FLAT else 1.0 / middle - 1.0 / math.expm1(min(middle, STEEP))
            low, high = (middle, high) if mean > wanted else (low, middle)
        return (low + high) / 2.0


FLAT, STEEP, HALVINGS = 1e-6, 700.0, 80
"""Slopes that are none; from which on the exponential is all there is (its inverse nothing, or one); bisections."""


class Engine(Value, frozen=True, kw_only=True):
    """What generates: how many devices share a copy of the model, and which share of each is the engine's."""

    tensor_parallel: int
    memory_ratio: float
    """Of the device's whole memory, while it is awake."""
    step_host_s: float
    """Scheduling of one token for all that run, beside the device's work."""
    reduce_s: float
    """One all-reduce of a few tokens inside a scale-up domain, by kernels of the engine's own."""
    reduce_across_s: float
    """The same over the network."""
    tensor_host_s: float
    """Handing over one tensor of the weights, beside its bytes."""
    running: int
    """The most sequences at once."""
    working_ratio: float
    """Share of its memory that neither weights nor keys and values have: activations, graphs."""


class Episode(Value, frozen=True, kw_only=True):
    """What one step of reinforcement learning does."""

    prompts: int
    responses: int
    """Of one prompt."""
    prompt_tokens: int
    response: Responses
    updates: int
    """Optimizer steps in which the samples are gone through once, each on its share of them."""
    epochs: int = 1
    """How often they are gone through."""
    old: bool
    """The policy scores its samples once before it is trained."""
    reference: bool
    """A frozen copy scores them as well."""

    @property
    def samples(self) -> int:
        """Of the step."""
        return self.prompts * self.responses

    def lengths(self, count: int) -> tuple[int, ...]:
        """Lengths of so many samples, prompt and response, at even quantiles; tokens."""
        own = (self.response.quantile_tokens((index + 0.5) / count) for index in range(count))
        return tuple(self.prompt_tokens + max(1, round(each)) for each in own)


class Generation(Value, frozen=True, kw_only=True):
    """How long the engine takes, and where it is held up; seconds, tokens, ratios."""

    engine: Engine
    seconds: float
    prefill_s: float
    tail_s: float
    """When fewer than half as many sequences run as did at most."""
    most_running: int
    """Sequences at once on one copy."""
    samples: int
    """Of one copy in the step."""
    weights_bytes: float
    """On one device."""
    room_tokens: float
    """Keys and values that fit beside the weights, of one copy."""


class Phase(Value, frozen=True, kw_only=True):
    """One part of the step."""

    name: str
    seconds: float
    memory_bytes: float
    """At most on one device; 0 where it is not said."""


class EpisodeEstimate(Value, frozen=True, kw_only=True):
    """A step of reinforcement learning, predicted phase by phase."""

    episode: Episode
    generation: Generation
    others: tuple[Generation, ...]
    """By other tensor parallelism of the engine, the fastest first."""
    phases: tuple[Phase, ...]
    waits: bool
    """Whether what the trainer holds must leave the device while samples are generated."""
    memory_bytes: float
    """Of a device."""

    @property
    def over(self) -> tuple[Phase, ...]:
        """Phases that need more than the device has."""
        return tuple(phase for phase in self.phases if phase.memory_bytes > self.memory_bytes)

    @property
    def seconds(self) -> float:
        """Of the step."""
        return sum(phase.seconds for phase in self.phases)
