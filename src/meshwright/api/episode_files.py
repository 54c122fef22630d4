"""What files of a framework say of a step of reinforcement learning, in the words of ``episode``'s options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.packed_files import most_tokens
from meshwright.errors import InputError, fault

if TYPE_CHECKING:
    from meshwright.api.fields import Faults, Values
    from meshwright.frameworks.facts import EpisodeSaid


SAMPLES = "microbatch"
"""Not an option: samples of a micro-batch, where files count them and do not pack."""
_OPTIONS = {"model": "MODEL", "global_batch": "--prompts, --responses and --updates",
            "sequence": "--prompt-tokens and --longest-response"}
"""What a case needs -> the options that say it here, where they are others than elsewhere."""
_OF_SAMPLES = {"global_batch", "sequence", "packs", "max_tokens", "lengths"}


def said(values: Values, faults: Faults) -> dict[str, Any]:
    """Option -> value, for what the files say: the case, the step, the engine; and, unless another layout is asked for, the
    trainer's, whose micro-batch is a pack, with ``SAMPLES`` or a cap.

    Errors:  ``InputError`` for files that start no such step, whose layout is not determined, or without a model or a cluster.
    """
    from meshwright.api.sources import take, wanted
    from meshwright.estimate.naming import name_of

    of_case = {name: value for name, value in values.items() if name not in ("layout", "pin", "max_tokens", "packs")}
    taken = take(of_case, faults)
    asked = taken.framework.facts.episode
    found = asked(taken.reading) if asked is not None else None
    if found is None:
        raise fault("episode.files", "{name}: these files start no step of reinforcement learning", path="--files",
                    name=taken.framework.title)
    if taken.missing and (more := {name: value for name, value in _by_step(values, found).items() if name in taken.missing}):
        taken = take({**of_case, **more}, faults)
    if taken.missing:
        raise fault("episode.open", "the files leave open what {missing} would say", path="--files",
                    missing=wanted(taken.missing, _OPTIONS))
    if taken.case is None:
        raise InputError(taken.impossible)
    told: dict[str, Any] = {
        **{name: value for name, value in taken.case.request.items() if name not in _OF_SAMPLES},
        "prompts": found.prompts,
        "responses": found.responses, "prompt_tokens": found.prompt_tokens,
        "longest_response": found.longest_response, "updates": found.updates, "epochs": found.epochs, "engine_tp": found.engine_tp,
        "engine_memory": found.engine_memory, "engine_running": found.engine_running, "no_old": not found.old,
        "no_reference": not found.reference,
    }
    if "layout" in values or values["pin"]:
        return {name: value for name, value in told.items() if value is not None}
    layout = taken.reading.layout
    if layout is None:
        words = "the files determine no layout: `meshwright check` says why; --layout says one, --pin searches for one"
        raise fault("episode.layout", words, path="--files")
    told["layout"] = name_of(taken.case.case, replace(layout, microbatch_sequences=1))
    limit = most_tokens(taken.framework, taken.reading)
    told |= {SAMPLES: layout.microbatch_sequences} if limit is None else {"max_tokens": limit(layout)}
    return {name: value for name, value in told.items() if value is not None}


def _by_step(values: Values, found: EpisodeSaid) -> dict[str, int]:
    """The batch and the longest sample that the step comes to, as far as flags and files together say it."""
    def of(name: str) -> int | None:
        said: int | None = values.get(name, getattr(found, name))
        return said

    prompts, responses, updates, prompt, longest = map(
        of, ("prompts", "responses", "updates", "prompt_tokens", "longest_response"))
    batch = {"global_batch": max(1, prompts * responses // updates)} if prompts and responses and updates else {}
    return batch | ({"sequence": prompt + longest} if prompt and longest else {})
