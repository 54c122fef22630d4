"""LLaMA-Factory with the Hugging Face Trainer, over DeepSpeed or accelerate's FSDP2, release by release.

Its Megatron back ends (``USE_MCA``, ``USE_MEGATRON_BRIDGE``) are other programs with other keys.
"""

from __future__ import annotations

from functools import cache, partial

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.deepspeed import RESUME
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.llama_factory_hf.limits import limits_of
from meshwright.frameworks.llama_factory_hf.mistakes import CHECKS, adds_keys, unknown_key
from meshwright.frameworks.llama_factory_hf.reading import interpret
from meshwright.frameworks.llama_factory_hf.sources import detect, open_files
from meshwright.frameworks.llama_factory_hf.surfaces import DEFAULT, RELEASES, TITLE, surface
from meshwright.frameworks.llama_factory_hf.writing import UNSPOKEN, alternatives, decide, normal, stays, write
from meshwright.frameworks.resume import SHARDED

__all__ = ["LLAMA_FACTORY_HF", "surface"]


def _features(release: str) -> Features:
    """What a release can express."""
    is_fsdp = release == "fsdp2"
    return Features(
        name="llama-factory-hf",
        attentions=("flash", "math"),
        compiles=True,
        schedules=("1f1b",),
        zero_stages=(0, 2, 3) if is_fsdp else (0, 1, 2, 3),
        offload_zero_stages=(2, 3) if is_fsdp else (1, 2, 3),
        partial_sharding=False,
        context_kinds=(),
        context_parallel=False,
        tensor_parallel=not is_fsdp,
        pipeline_parallel=False,
        expert_parallel=False,
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope", "learned", "alibi", "none"),
        overlaps=("grad", "param"),
        offloads=() if is_fsdp else ("checkpoints",),
        tasks=("pretrain", "sft", "lora"),
    )


@cache
def _at(release: str) -> Framework:
    """LLaMA-Factory at a release."""
    features = _features(release)
    return Framework(
        name="llama-factory-hf",
        title=TITLE,
        aliases=("llama-factory", "llamafactory"),
        implementation="torch-eager",
        version=release,
        releases=RELEASES,
        variant=_at,
        features=features,
        limits=limits_of(release, features),
        writer=write,
        surface=surface,
        decide=decide,
        opener=open_files,
        detect=detect,
        interpreter=interpret,
        checks=CHECKS[release],
        unknown_keys=unknown_key,
        adds_keys=adds_keys,
        config_keys=("config-file",),
        normal=partial(normal, release=release),
        unspoken=UNSPOKEN,
        alternatives=alternatives(),
        stays=stays,
        resume=SHARDED if release == "fsdp2" else RESUME,
        facts=Facts(
            remedies=(
                Remedy(phase="loss", words="enable_liger_kernel takes the loss in chunks, and the logits are never whole"),
            ),
        ),
    )


LLAMA_FACTORY_HF = _at(DEFAULT)
