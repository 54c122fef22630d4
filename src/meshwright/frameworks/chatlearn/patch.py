"""Arguments of Megatron-LM that ChatLearn's configuration classes do not declare, and the patch that declares them.

A Megatron argument reaches a run only as a field of one of the classes, under its argparse ``dest``; the default must be
Megatron's own, because a declared field is copied even where the YAML is silent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from meshwright.frameworks.base import File

FILE = "chatlearn.patch"
_CONFIG = "chatlearn/configs/megatron_config.py"
_TRAINER = "chatlearn/algorithm/grpo_utils/megatron_policy_trainer.py"


class Field(Struct, frozen=True, kw_only=True):
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


class Place(Struct, frozen=True, kw_only=True):
    """Where lines change at commit b7af31a9: the number of the first line shown, and the lines around what changes."""

    file: str
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    removed: tuple[str, ...] = ()

    def hunk(self, added: Sequence[str], moved: int) -> str:
        """The change as a hunk of a unified diff; ``moved``: by how many lines earlier hunks have moved it."""
        old, new = (len(self.before) + len(lines) + len(self.after) for lines in (self.removed, added))
        lines = [
            *(f" {line}" for line in self.before), *(f"-{line}" for line in self.removed), *(f"+{line}" for line in added),
            *(f" {line}" for line in self.after),
        ]
        return "\n".join((f"@@ -{self.line},{old} +{self.line + moved},{new} @@", *lines, ""))


_CLASSES = {
    "MegatronConfig": Place(
        file=_CONFIG, line=262,
        before=("@dataclass", "class MegatronConfig(BaseConfig):", '    """configs for megatron model"""'),
        after=("    model_provider_module: str = field(", "        default='pretrain_gpt', metadata={",
               '            "help": "A module with a model_provider() that could be imported in the current PYTHONPATH to build '
               'mcore model"'),
    ),
    "MegatronPolicyTrainerConfig": Place(
        file=_CONFIG, line=378,
        before=("@dataclass", "class MegatronPolicyTrainerConfig(PolicyTrainerConfig, MegatronConfig):",
                '    """Configs for megatron policy trainer model"""'),
        after=("    recompute_granularity: Optional[str] = field(", "        default=None,", "        metadata={"),
    ),
}
_ITERATORS = {
    "data_iterator": Place(
        file=_TRAINER, line=138,
        before=("        data_list = [batching(data_b) for data_b in microbatch_list]", "",
                "        num_microbatches = len(data_list)"),
        removed=("        data_iterator = iter(data_list)",),
        after=("", "        self.optimizer.zero_grad()", "        # Forward pass."),
    ),
    "data_iter": Place(
        file=_TRAINER, line=290,
        before=("", "        data_list = [batching(data_b) for data_b in microbatch_list]",
                "        num_microbatches = len(data_list)"),
        removed=("        data_iter = iter(data_list)",),
        after=("        # NOTE: internal computation", "        args = get_args()",
               "        forward_backward_func = get_forward_backward_func()"),
    ),
}


def patch_file(names: Collection[str], *, interleaved: bool) -> File | None:
    """The patch for some fields; ``interleaved`` also hands the trainer's data to each model chunk. None where none is needed.

    ``git apply`` takes it on commit b7af31a9, and ``patch`` wherever the lines around the changes still stand.
    """
    changes = [
        (place, [f"    {name}: {each.annotation} = field({each.default})" for name, each in FIELDS.items()
                 if name in names and each.owner == owner])
        for owner, place in _CLASSES.items()
    ]
    if interleaved:  # the interleaved schedule demands an iterator for each model chunk
        changes += [
            (place, [f"        {name} = [iter(data_list) for _ in self.model] if len(self.model) > 1 else iter(data_list)"])
            for name, place in _ITERATORS.items()
        ]
    text, file, moved = "", "", 0
    for place, added in changes:
        if not added:
            continue
        if place.file != file:
            text, file, moved = text + f"--- a/{place.file}\n+++ b/{place.file}\n", place.file, 0
        text += place.hunk(added, moved)
        moved += len(added) - len(place.removed)
    return File(path=FILE, text=text) if text else None
