"""What a user's files come to, and what is known beside them.

Files become a ``Source`` (``documents``), a source becomes a ``Reading`` (a framework's ``interpreter``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import field

from meshwright.domain.training import Lora, Task
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.domain.training import Batch
    from meshwright.errors import Message


class Given(Value, frozen=True, kw_only=True):
    """What is known beside the files; it fills what they leave open and never contradicts them silently."""

    num_devices: int | None = None
    devices_per_node: int | None = None
    model: Model | None = None
    global_batch_sequences: int | None = None
    sequence_tokens: int | None = None
    task: Task | None = None
    packs: Batch | None = None
    """What the samples of a step are packed into, where lengths are known: for files that count samples and pack as they run."""


NOTHING_GIVEN = Given()
TASK_VARIABLE = "MESHWRIGHT_TASK"
"""Says what is trained in launch scripts of frameworks that have no key for it; nobody else reads it."""


class Said(Value, frozen=True, kw_only=True):
    """What the files say of the case; None where they are silent."""

    devices: int | None = None
    global_batch_sequences: int | None = None
    sequence_tokens: int | None = None
    precision: str | None = None
    """A precision of the catalogue."""
    gradient_dtype: str | None = None
    optimizer: str | None = None
    task: Task | None = None
    model: str | None = None
    """A model of the catalogue, where the files name one: by a recipe that is of it."""
    lora: Lora | None = None
    implementation: str | None = None
    """An implementation of the catalogue, where a switch of the files changes which kernels run."""
    launch: str | None = None
    """Settings of the launch that the files make, as ``domain.launch`` spells them."""
    figures: Mapping[str, object] = field(default_factory=dict)
    """The model's figures: layers hidden heads key_value_heads head_dim ffn vocabulary experts experts_per_token expert_ffn
    shared_ffn mtp_layers (further tokens) mtp_shared tied_embeddings gated latent_attention windowed, ``mixtures``: of each layer
    whether it is one, and ``blocks``: of a hybrid the letters of its pattern; only those that the files hold."""


class Reading(Value, frozen=True, kw_only=True):
    """Files as a framework understands them."""

    framework: str
    version: str
    source: Source
    said: Said
    layout: Layout | None = None
    """None where the files do not determine one; ``messages`` then say why."""
    messages: tuple[Message, ...] = ()
    """What could not be mapped, and why."""

    @property
    def with_task(self) -> Reading:
        """With the task that ``TASK_VARIABLE`` names, where the framework's own keys say none."""
        variable = self.source.environment.get(TASK_VARIABLE)
        named = next((task for task in get_args(Task) if variable is not None and variable.value == task), None)
        return self if named is None or self.said.task is not None else replace(self, said=replace(self.said, task=named))


Severity = Literal["error", "warning", "advice"]
"""``error``: it cannot run, or not as it says; ``warning``: it runs, but wrong or worse; ``advice``: it could be better."""


class Finding(Value, frozen=True, kw_only=True):
    """One thing that ``check`` has to say. The identifier of the message is stable."""

    message: Message
    severity: Severity
    value: object = None
    """What stands there."""
    expected: object = None
    """What would be right."""
    source: str = ""
    """Who says so: a rule of the framework and where it stands, a guide's line, an issue."""
