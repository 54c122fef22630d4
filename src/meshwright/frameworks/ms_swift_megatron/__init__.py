"""ms-swift's Megatron side (``megatron pt``, ``sft``, ``rlhf``): settings of Megatron-Core under names and defaults of its own."""

from __future__ import annotations

from dataclasses import replace

from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.ms_swift_megatron.deciding import UNSPOKEN, decide, normal
from meshwright.frameworks.ms_swift_megatron.limits import all_limits
from meshwright.frameworks.ms_swift_megatron.mistakes import CHECKS, unknown_key
from meshwright.frameworks.ms_swift_megatron.names import CORE, NAME, OWN_ATTENTION, RELEASES, TITLE
from meshwright.frameworks.ms_swift_megatron.reading import interpret, surface
from meshwright.frameworks.ms_swift_megatron.sources import open_files
from meshwright.frameworks.ms_swift_megatron.writing import write

__all__ = ["MS_SWIFT_MEGATRON", "surface"]

_FEATURES = replace(
    MEGATRON.at(CORE).features, name=NAME, tasks=("pretrain", "sft", "lora"), partial_sharding=False, context_kinds=("ring",),
    overlaps=("grad", "param", "tp", "p2p"), offloads=(), positions=("rope",), plain_optimizers=("muon",),
    own_attention=OWN_ATTENTION,
)
MS_SWIFT_MEGATRON = Framework(
    name=NAME,
    title=TITLE,
    aliases=("megatron-swift",),
    implementation=MEGATRON.implementation,
    version=RELEASES[-1],
    releases=RELEASES,
    features=_FEATURES,
    limits=all_limits(),
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_files,
    interpreter=interpret,
    checks=CHECKS,
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=(
        frozenset({"pipeline_model_parallel_layout", "virtual_pipeline_model_parallel_size", "decoder_first_pipeline_num_layers",
                   "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
                   "account_for_loss_in_pipeline_split"}),
        frozenset({"use_megatron_fsdp", "data_parallel_sharding_strategy"}),
    ),
    facts=Facts(remedies=(Remedy(
        phase="loss", key="cross_entropy_loss_fusion", words="cross_entropy_loss_fusion keeps fewer copies of the logits"),)),
)
