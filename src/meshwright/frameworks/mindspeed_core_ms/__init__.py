"""MindSpeed-Core-MS: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.ascend.recompute_lists import LISTS
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import MINDSPORE, OF_ASCEND, Facts
from meshwright.frameworks.mindspeed_core_ms import flag_reading, flag_rules, flags
from meshwright.frameworks.mindspeed_core_ms.limits import limits_of
from meshwright.frameworks.mindspeed_core_ms.mistakes import file_checks, unknown_key
from meshwright.frameworks.mindspeed_core_ms.reading import LIST_SPELLINGS, interpret
from meshwright.frameworks.mindspeed_core_ms.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.resume import CUT
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.documents.source import Source

__all__ = ["MINDSPEED_CORE_MS"]

NAME, TITLE = "mindspeed-core-ms", "MindSpeed-Core-MS"
FACTS = Facts(
    ascend_allocator=MINDSPORE, stages_inside_key="--use-tp-pp-dp-mapping", fork_of="megatron", signs=OF_ASCEND,
)
RELEASES = ("r0.1.0", "br_master", "r0.2.0")
"""r0.1.0 (764c32d) reads YAML, br_master (07c5198) flags; r0.2.0 and later have the flags of MindSpeed-LLM."""
FEATURES = Features(
    name=NAME,
    attentions=("flash", "math"),
    zero_stages=(0, 1, 2, 3),
    partial_sharding=False,
    context_kinds=("ring", "ulysses", "hybrid"),
    expert_tensor_parallel=False,
    recompute_mixed=True,
    selective_modules=("comm", "core_attn", "mlp_act"),
    selective_default=("comm",),
    positions=("rope", "learned"),
    optimizer_offload=False,
    recompute_per_stage=True,
    overlaps=("grad", "param", "p2p"),
)


BR_MASTER = replace(
    FEATURES, context_kinds=("ring", "ulysses"), partial_sharding=True, recompute_per_stage=False, recompute_mixed=False,
    selective_modules=("core_attn", "mlp_act"), selective_default=("core_attn",),
)


@cache
def surface() -> Surface:
    """Every key that a configuration class of r0.1.0 takes, and every flag of br_master."""
    return load_surface(__name__, TITLE, RELEASES)


def spelling(version: str) -> str | None:
    """A release from what users write: ``r0.3.0``, ``master`` and ``dev`` have the surface of r0.2.0."""
    name = version.lower().removeprefix("v")
    if name in {"master", "dev"} or name.startswith(("r0.2", "r0.3", "r0.4", "r0.5", "0.2", "0.3", "0.4", "0.5")):
        return "r0.2.0"
    return "r0.1.0" if name.startswith(("r0.1", "0.1")) else "br_master" if name.startswith("br") else None


def detect(source: Source) -> str | None:
    """The release that files are written for: YAML sections, flags of br_master, or those of MindSpeed-LLM."""
    from meshwright.frameworks.mindspeed_llm import surface as later

    keys = set(source.settings)
    if any(key.startswith(("parallel_config.", "accelerate_config.", "train_config.")) for key in keys):
        return "r0.1.0"
    if any(key.startswith(("model_parallel.", "language_model.")) for key in keys):
        return "br_master"
    used = {key for key in keys if key.startswith("--")}
    only_br = used & set(surface().at("br_master")) - set(later().keys)
    only_later = used & set(later().keys) - set(surface().at("br_master"))
    if not {"--num-layers", "--hidden-size", "--tensor-model-parallel-size"} & used:
        return None
    if len(only_br) != len(only_later):
        return "br_master" if len(only_br) > len(only_later) else "r0.2.0"
    return "br_master" if source.value("--distributed-backend") == "hccl" else "r0.2.0"


def variant(release: str) -> Framework:
    """MindSpeed-Core-MS at a release."""
    if release == "br_master":
        return replace(
            MINDSPEED_CORE_MS, version=release, features=BR_MASTER, limits=flag_rules.limits_of(NAME, TITLE, BR_MASTER),
            writer=flags.write, decide=flags.decide, interpreter=flag_reading.interpret, checks=flag_rules.flag_checks(NAME),
            unknown_keys=flag_rules.unknown_flag, normal=flags.normal, unspoken=flags.UNSPOKEN, alternatives=(),
        )
    if release == "r0.2.0":
        return _later(release)
    return MINDSPEED_CORE_MS


def _later(release: str) -> Framework:
    """The releases that rewrite MindSpeed-LLM's sources and take its flags."""
    from meshwright.frameworks import mindspeed_llm as llm
    from meshwright.frameworks.mindspeed_llm.limits import limits_of as llm_limits
    from meshwright.frameworks.mindspeed_llm.mistakes import flag_checks
    from meshwright.frameworks.mindspeed_llm.reading import interpret as read_flags
    from meshwright.frameworks.mindspeed_llm.writing import MINDSPORE as BEHIND
    from meshwright.frameworks.mindspeed_llm.writing import write as write_flags

    features = replace(llm.FEATURES, name=NAME)
    return replace(
        llm.MINDSPEED_LLM, name=NAME, title=TITLE, aliases=MINDSPEED_CORE_MS.aliases, version=release, releases=RELEASES,
        spellings=spelling, variant=variant, detect=detect, features=features, limits=llm_limits(NAME, TITLE, features),
        writer=partial(write_flags, backend=BEHIND), surface=partial(llm.surface_of, release),
        interpreter=partial(read_flags, framework=NAME), checks=flag_checks(NAME), facts=FACTS,
    )


def _alternatives() -> tuple[frozenset[str], ...]:
    """Setting one of these takes the others out: lists by stage are worthless for another pipeline."""
    pipeline = ("parallel_config.pipeline_model_parallel_size", "parallel_config.virtual_pipeline_model_parallel_size")
    return (frozenset({*pipeline, *(spelling for name in LISTS for spelling in LIST_SPELLINGS[name])}),)


MINDSPEED_CORE_MS = Framework(
    name=NAME,
    title=TITLE,
    aliases=("mindspeed-ms", "mindspore"),
    implementation="mindspore-cells",
    version="r0.1.0",
    releases=RELEASES,
    spellings=spelling,
    variant=variant,
    detect=detect,
    features=FEATURES,
    limits=limits_of(NAME, TITLE, FEATURES),
    writer=write,
    surface=surface,
    decide=decide,
    interpreter=interpret,
    config_keys=("--config_path",),
    checks=file_checks(NAME),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=_alternatives(),
    resume=CUT,
    facts=FACTS,
)
