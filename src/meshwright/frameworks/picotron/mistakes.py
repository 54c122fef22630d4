"""What picotron takes although it is wrong, and what its launch lacks (commit 59714b1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import is_true
from meshwright.frameworks.rules import At, Mistake, checks

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

_UNREAD = {
    "model.use_flash_attention": "environment.FLASH_ATTEN decides", "model.dtype": "BF16 is used where the device has it",
    "distributed.backend": "distributed.use_cpu decides",
}
"""Keys of its own template that no line reads -> what decides."""
_OPTIONAL = frozenset({
    "training.num_samples", "dataset.subset_name", "dataset.split", "environment.HF_TOKEN", "model.num_hidden_layers",
    "model.num_attention_heads", "model.num_key_value_heads", "logging.run_name", "model.use_fused_adam", *_UNREAD,
})


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Extra keys of the JSON are ignored without a word; flags belong to the launch."""
    return None if key.startswith("-") else ("warning", "picotron never reads {key}")


def _missing(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.frameworks.picotron import surface

    for key in surface().keys:
        if key not in _OPTIONAL and key not in reading.source.settings:
            yield {"key": key, "expected": key}


CHECKS = checks("picotron", (
    Mistake("unread", "picotron never reads {key}: {instead}",
            tuple(At(key, values={"instead": instead}) for key, instead in _UNREAD.items()), "warning"),
    Mistake("fused-adam", "use_fused_adam never takes effect: a torch.device is compared with the text 'cuda'",
            At("model.use_fused_adam", False, is_true), "warning"),
    Mistake("missing", "{key} is missing, which is a KeyError when picotron reads it", _missing),
    Mistake("flash-on-cpu", 'Kernel operations requires dtype=torch.bfloat16: FLASH_ATTEN must be "0" with use_cpu',
            At("environment.FLASH_ATTEN", "0", lambda value: str(value) == "1", beside={"distributed.use_cpu": is_true})),
), source="picotron 59714b1")
