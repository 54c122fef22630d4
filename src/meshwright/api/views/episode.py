"""JSON of ``episode``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import estimate_view, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.episode import EpisodeEstimate, Generation
    from meshwright.domain.estimate import Estimate


def episode_view(found: EpisodeEstimate | None, trained: Estimate, request: Mapping[str, Any]) -> dict[str, Any]:
    """The phases in their order, the engine's ways, and the trainer's estimate."""
    document: dict[str, Any] = {
        "request": {name: value for name, value in request.items() if name != "lengths"}, "training": estimate_view(trained),
        "step_s": None, "phases": [], "engine": None, "other_engines": [], "trainer_leaves_device": None,
    }
    if found is None:
        return document
    tokens = found.episode.samples * (found.episode.prompt_tokens + found.episode.response.mean_tokens)
    whole_s = found.seconds
    phases = [
        {"name": each.name, "seconds": each.seconds, "ratio": each.seconds / whole_s, "memory_bytes": whole(each.memory_bytes)}
        for each in found.phases
    ]
    return document | {
        "step_s": found.seconds, "trainer_leaves_device": found.waits, "samples": found.episode.samples, "tokens": tokens,
        "updates": found.episode.updates, "epochs": found.episode.epochs, "phases": phases, "engine": engine_view(found.generation),
        "other_engines": [engine_view(each) for each in found.others],
    }


def engine_view(each: Generation) -> dict[str, Any]:
    """One way to run the engine."""
    return {
        "tensor_parallel": each.engine.tensor_parallel, "memory_ratio": each.engine.memory_ratio, "generation_s": each.seconds,
        "prefill_s": each.prefill_s, "tail_s": each.tail_s, "samples": each.samples, "running": each.most_running,
        "weights_bytes": whole(each.weights_bytes), "room_tokens": round(each.room_tokens),
    }
