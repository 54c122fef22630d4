"""MindSpeed-LLM: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from functools import cache

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import FUSED_LOSS, OF_ASCEND, Facts
from meshwright.frameworks.mindspeed_llm.limits import limits_of
from meshwright.frameworks.mindspeed_llm.mistakes import flag_checks, unknown_flag
from meshwright.frameworks.mindspeed_llm.reading import PLACES, interpret
from meshwright.frameworks.mindspeed_llm.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.programs import other_program
from meshwright.frameworks.resume import CUT
from meshwright.frameworks.surface import Surface, load_surface

__all__ = ["MINDSPEED_LLM", "surface_of"]

NAME, TITLE = "mindspeed-llm", "MindSpeed-LLM"
RELEASES = ("c77308a",)
"""The commit c77308a (2026-08-21) with MindSpeed 028de58 and Megatron-LM core_v0.12.1."""
FEATURES = Features(
    name=NAME,
    attentions=("flash", "math"),
    schedules=("1f1b", "interleaved", "dualpipev"),
    context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
    recompute_mixed_first=True,
    selective_modules=("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "mlp_act"),
    positions=("rope", "learned", "alibi", "none"),
    offload_zero_stages=(1,),
    overlaps=("grad", "param", "tp", "p2p"),
    tasks=("pretrain", "sft", "lora"),
)
ALTERNATIVES = (
    frozenset(
        {
            *PLACES,
            "--num-layers",
            "--noop-layers",
            "--num-layers-per-virtual-pipeline-stage",
            "--num-virtual-stages-per-pipeline-rank",
            "--decoder-first-pipeline-num-layers",
            "--decoder-last-pipeline-num-layers",
            "--schedules-method",
        }
    ),
    frozenset({"--recompute-granularity", "--recompute-activations"}),
)


@cache
def surface() -> Surface:
    """Every flag of Megatron-LM core_v0.12.1, MindSpeed and MindSpeed-LLM."""
    return load_surface(__name__, TITLE, RELEASES)


@cache
def surface_of(release: str) -> Surface:
    """The same flags under a release of another framework that takes them."""
    return surface() if release in RELEASES else load_surface(__name__, TITLE, (release,))


MINDSPEED_LLM = Framework(
    name=NAME,
    title=TITLE,
    aliases=("mindspeed",),
    implementation="mindspeed",
    version=RELEASES[-1],
    releases=RELEASES,
    features=FEATURES,
    limits=limits_of(NAME, TITLE, FEATURES),
    writer=write,
    surface=surface,
    decide=decide,
    interpreter=interpret,
    checks=flag_checks(NAME),
    adds_keys=other_program,
    unknown_keys=unknown_flag,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=ALTERNATIVES,
    resume=CUT,
    facts=Facts(
        stages_inside_key="--use-tp-pp-dp-mapping", remedies=(FUSED_LOSS,), fork_of="megatron", signs=OF_ASCEND,
    ),
)
