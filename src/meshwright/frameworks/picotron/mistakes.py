"""What picotron takes although it is wrong, and what its launch lacks (commit 59714b1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

CHECKS: list[Check] = []
_rule = partial(file_rule, CHECKS, source="picotron 59714b1")
_UNREAD = ("model.use_flash_attention", "model.dtype", "distributed.backend")
"""Keys of its own template that no line reads."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Extra keys of the JSON are ignored without a word; flags belong to the launch."""
    return None if key.startswith("-") else ("warning", "picotron never reads {key}")


@_rule("picotron.unread", "picotron never reads {key}: {instead}", severity="warning")
def _unread(reading: Reading, case: Case | None) -> Iterator[Values]:
    instead = {
        "model.use_flash_attention": "environment.FLASH_ATTEN decides", "model.dtype": "BF16 is used where the device has it",
        "distributed.backend": "distributed.use_cpu decides",
    }
    for key in _UNREAD:
        if setting := reading.source.settings.get(key):
            yield at(setting, None, key=key, instead=instead[key])


@_rule("picotron.fused-adam", "use_fused_adam never takes effect: a torch.device is compared with the text 'cuda'",
       severity="warning")
def _fused_adam(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("model.use_fused_adam")
    if setting and setting.value is True:
        yield at(setting, False)


@_rule("picotron.missing", "{key} is missing, which is a KeyError when picotron reads it")
def _missing(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.frameworks.picotron import surface

    optional = {"training.num_samples", "dataset.subset_name", "dataset.split", "environment.HF_TOKEN",
                "model.num_hidden_layers", "model.num_attention_heads", "model.num_key_value_heads", "logging.run_name",
                "model.use_fused_adam", *_UNREAD}
    for key in surface().keys:
        if key not in optional and key not in reading.source.settings:
            yield {"key": key, "expected": key}


@_rule("picotron.flash-on-cpu", 'Kernel operations requires dtype=torch.bfloat16: FLASH_ATTEN must be "0" with use_cpu')
def _flash_on_cpu(reading: Reading, case: Case | None) -> Iterator[Values]:
    flash = reading.source.settings.get("environment.FLASH_ATTEN")
    if flash and str(flash.value) == "1" and reading.source.value("distributed.use_cpu") is True:
        yield at(flash, "0")
