"""What the checks of ChatLearn's files ask of a reading: keys of the trainer, its degrees, its sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.chatlearn.deciding import TRAINER, multiple
from meshwright.frameworks.chatlearn.packing import sequences_for, worst_tokens, written_for
from meshwright.frameworks.chatlearn.reading import PROMPT_TOKENS, RESPONSE_TOKENS
from meshwright.frameworks.facts import PackingLimit
from meshwright.packing.modes.chatlearn import most_tokens

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading

DEFAULT_LIMIT_TOKENS = 32768
"""``max_token_in_packing`` where the files do not say it."""


def setting_of(reading: Reading, name: str) -> Setting | None:
    """A key of the trainer that has a value."""
    setting = reading.source.settings.get(f"{TRAINER}.{name}")
    return None if setting is None or setting.value is None else setting


def number_of(reading: Reading, key: str, default: int) -> int | None:
    """A whole number of the files; None where it stands there but is no number."""
    value = reading.source.value(key)
    return default if value is None else value if isinstance(value, int) and not isinstance(value, bool) else None


def degrees_of(reading: Reading) -> tuple[int, int, int]:
    """tp, pp and cp of the trainer; 1 where they are not known."""
    names = ("tensor_model", "pipeline_model", "context")
    tp, pp, cp = (number_of(reading, f"{TRAINER}.{name}_parallel_size", 1) or 1 for name in names)
    return tp, pp, cp


def is_fsdp(reading: Reading) -> bool:
    """Whether the files choose the FSDP back end."""
    return reading.source.value("runtime_args.train_backend") == "fsdp"


def is_megatron(reading: Reading) -> bool:
    """Whether the files choose the Megatron back end, or none."""
    return not is_fsdp(reading)


def sequence_of(reading: Reading) -> int | None:
    """Tokens of the longest sample, as the trainer has it."""
    prompt = number_of(reading, f"{TRAINER}.max_prompt_tokens_length", PROMPT_TOKENS)
    response = number_of(reading, f"{TRAINER}.max_response_tokens_length", RESPONSE_TOKENS)
    return prompt + response if prompt and response else None


def packing_limit(reading: Reading) -> PackingLimit | None:
    """How the trainer packs; None where it does not, or where the files do not say what the limit or the longest sample is."""
    key, longest = f"{TRAINER}.max_token_in_packing", sequence_of(reading)
    limit = number_of(reading, key, DEFAULT_LIMIT_TOKENS)
    if reading.source.value(f"{TRAINER}.packing") is not True or limit is None or limit < 1 or longest is None:
        return None
    return PackingLimit(
        key=key, tokens=limit, longest_tokens=longest, fullest=lambda tokens, layout: worst_tokens(tokens, multiple(layout)),
        bound=lambda layout: most_tokens(limit, longest, rank_samples(reading, layout), multiple(layout)),
    )


def limit_stays(reading: Reading, layout: Layout, key: str) -> bool:
    """Whether a user's own packing limit stands for the micro-batches of another layout; one that was written here follows it."""
    packing, before = packing_limit(reading), reading.layout
    if packing is None or key != packing.key or before is None:
        return False
    samples = [rank_samples(reading, each) for each in (before, layout)]
    ours = written_for(packing.tokens, packing.longest_tokens, samples[0], multiple(before)) is not None
    return not ours and sequences_for(packing.tokens, packing.longest_tokens, samples[1]) == layout.microbatch_sequences


def rank_samples(reading: Reading, layout: Layout) -> int:
    """Samples of a step that one replica of a layout packs."""
    return (reading.said.global_batch_sequences or 0) // layout.data_parallel
