"""Arguments of Megatron-LM that ChatLearn's configuration classes do not declare, and the patch that declares them.

A Megatron argument reaches a run only as a field of one of the classes, under its argparse ``dest``; the default must be
Megatron's own, because a declared field is copied even where the YAML is silent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from meshwright.frameworks.base import File

FILE = "chatlearn.patch"
_CONFIG = "chatlearn/configs/megatron_config.py"
_TRAINER = "chatlearn/algorithm/grpo_utils/megatron_policy_trainer.py"
_BASES = {"MegatronPolicyTrainerConfig": "PolicyTrainerConfig, MegatronConfig", "MegatronConfig": "BaseConfig"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field to add: its class (``MegatronConfig``: the reference policy too), type and Megatron's default."""

    owner: str
    annotation: str
    default: str


def _field(annotation: str, default: str, owner: str = "MegatronPolicyTrainerConfig") -> Field:
    return Field(owner=owner, annotation=annotation, default=default)


FIELDS = {
    "num_virtual_stages_per_pipeline_rank": _field("Optional[int]", "default=None", "MegatronConfig"),
    "cp_comm_type": _field("List[str]", "default_factory=lambda: ['p2p']", "MegatronConfig"),
    "hierarchical_context_parallel_sizes": _field("Optional[List[int]]", "default=None", "MegatronConfig"),
    "tp_comm_overlap": _field("bool", "default=False"),
    "num_distributed_optimizer_instances": _field("int", "default=1"),
    "optimizer_cpu_offload": _field("bool", "default=False"),
    "optimizer_offload_fraction": _field("float", "default=1.0"),
    "use_precision_aware_optimizer": _field("bool", "default=False"),
}
"""Field -> how it is declared; keys below ``models.policy_trainer``."""


def undeclared(keys: Collection[str]) -> tuple[str, ...]:
    """Those of some keys that need the patch, as field names."""
    return tuple(name for name in FIELDS if f"models.policy_trainer.{name}" in keys)


def patch_file(names: Collection[str], *, interleaved: bool) -> File | None:
    """The patch for some fields; ``interleaved`` also hands the trainer's data to each model chunk. None where none is needed.

    Hunks name their class or method instead of line numbers, which depend on the user's own file: apply them by hand.
    """
    hunks = []
    for owner, bases in _BASES.items():
        added = [
            f"+    {name}: {each.annotation} = field({each.default})"
            for name, each in FIELDS.items() if name in names and each.owner == owner
        ]
        if added:
            hunks.append("\n".join((f"@@ class {owner}({bases}): @@", *added)))
    parts = [f"--- a/{_CONFIG}\n+++ b/{_CONFIG}\n" + "\n".join(hunks) + "\n"] if hunks else []
    if interleaved:
        parts.append(f"--- a/{_TRAINER}\n+++ b/{_TRAINER}\n" + "\n".join(map(_per_chunk, ("train_step", "forward_step"))) + "\n")
    return File(path=FILE, text="".join(parts)) if parts else None


def _per_chunk(method: str) -> str:
    """The hunk that gives each model chunk an iterator of its own, as the interleaved schedule demands."""
    name = {"train_step": "data_iterator", "forward_step": "data_iter"}[method]
    before = f"        {name} = iter(data_list)"
    after = f"        {name} = [iter(data_list) for _ in self.model] if len(self.model) > 1 else iter(data_list)"
    return f"@@ class MegatronPolicyTrainer(MegatronModule): def {method} @@\n-{before}\n+{after}"
