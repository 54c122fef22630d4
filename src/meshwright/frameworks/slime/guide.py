"""What the README and the script beside a plan for slime say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.documents.quoting import Shell
from meshwright.frameworks.hub import hub_name, hub_words
from meshwright.frameworks.manual import Blank, Manual, Switch, start_commands, unsaved
from meshwright.frameworks.megatron.environment import variables
from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.megatron.script import numbers
from meshwright.frameworks.slime.flags import CORE, DYNAMIC, TITLE, is_tuning
from meshwright.frameworks.verl.batch import cap_for, longest_tokens, responses_for, samples_of
from meshwright.frameworks.verl.rollout import UTILIZATION
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Options
    from meshwright.frameworks.manual import Variable

_BEFORE = "SLIME_PATH=/path/to/slime MEGATRON_PATH=/path/to/Megatron-LM"
_DEFAULTS = {
    "rl": {"LEARNING_RATE": "1e-6", "ADAM_BETA2": "0.98"},
    "sft": {"LEARNING_RATE": "1e-5", "MIN_LEARNING_RATE": "1e-6", "WARMUP_FRACTION": "0.1"},
}
"""What slime's own recipes have, where Megatron-LM's have another."""
_UNUSED = {"rl": {"TRAIN_ITERS", "MIN_LEARNING_RATE", "WARMUP_FRACTION"}, "sft": {"TRAIN_ITERS"}}
_PROBE = (
    "slime has no dry run. Measure the trainer's fullest stage with Megatron-LM's own probe (`--fake-process-group`, from core "
    "0.16 on) and the same degrees: `meshwright export PLAN --to megatron --out DIR` writes it. "
    "`meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES` takes what it measures."
)


def manual_of(case: Case, layout: Layout, release: str, options: Options) -> Manual:
    """What the README and the launch script say."""
    tuning = is_tuning(case)
    return Manual(
        title=f"{TITLE} {release}", needs=_needs(case, layout, release),
        commands=start_commands(layout, case, "run.sh", _BEFORE), blanks=(*_places(case, tuning), *_numbers(case, tuning, options)),
        variables=_variables(case, layout, tuning), off=_off(case, layout), assumed=_assumed(case, layout, tuning), probe=_PROBE,
    )


def _needs(case: Case, layout: Layout, release: str) -> str:
    """What must be installed, and who starts what."""
    several = " Start it on every node: the first becomes Ray's head, the others join it."
    return (
        f"slime {release} with the Megatron-LM of its image (core {CORE}, patched), Transformer Engine, SGLang and Ray. "
        "`tools/convert_hf_to_torch_dist.py` of slime makes the weights that `REF_LOAD` names from those of "
        f"{hub_words(case.model)}." + (several if layout.world > case.cluster.devices_per_node else "")
    )


def _places(case: Case, tuning: bool) -> tuple[Blank, ...]:
    """Where things are."""
    own = (
        Blank(name="PROMPT_DATA", default="/root/openhermes2_5.parquet", what="conversations"),
        Blank(name="INPUT_KEY", default="messages", what="where a conversation stands in a row"),
    ) if tuning else (
        Blank(name="PROMPT_DATA", default="/root/dapo-math-17k/dapo-math-17k.jsonl", what="prompts, one a line"),
        Blank(name="INPUT_KEY", default="prompt", what="where a prompt stands in a line"),
        Blank(name="LABEL_KEY", default="label", what="where its answer stands"),
        Blank(name="RM_TYPE", default="deepscaler", what="how responses are judged"),
    )
    return (
        Blank(name="SLIME_PATH", default=Shell("$PWD"), what="checkout of slime"),
        Blank(name="MEGATRON_PATH", default="/root/Megatron-LM", what="checkout of Megatron-LM, as slime's image has it"),
        Blank(name="HF_CHECKPOINT", default=hub_name(case.model), what="folder of the model: tokenizer, engine, and what the "
                                                                       "figures are checked against"),
        Blank(name="REF_LOAD", default=Shell("${HF_CHECKPOINT}_torch_dist"), what="its weights as Megatron-LM has them"),
        *own,
    )


def _numbers(case: Case, tuning: bool, options: Options) -> tuple[Blank, ...]:
    """Numbers to fill in, with what slime's recipes have."""
    kind = "sft" if tuning else "rl"
    defaults, unused = _DEFAULTS[kind], _UNUSED[kind]
    return tuple(
        structs.replace(each, default=defaults.get(each.name, each.default))
        for each in numbers(case, options) if each.name not in unused
    )


def _variables(case: Case, layout: Layout, tuning: bool) -> tuple[Variable, ...]:
    """What Megatron-LM needs; expandable segments only where nothing is moved to the host by torch_memory_saver."""
    found = variables(case, layout, parse_version(CORE).minor)
    return tuple(each for each in found if tuning or each.name != "PYTORCH_CUDA_ALLOC_CONF")


def _off(case: Case, layout: Layout) -> tuple[Switch, ...]:
    """Faster things that stay off."""
    cap = cap_for(layout.microbatch_sequences, case.batch.sequence_tokens, layout.context_parallel)
    packs = Switch(
        name=f"{DYNAMIC} --max-tokens-per-gpu {cap}", risk="equivalent",
        what=f"packs short samples together, up to {cap} tokens on a GPU: fewer micro-batches",
    )
    chunks = Switch(name="--log-probs-chunk-size 1024", risk="equivalent",
                    what="log-probabilities of some tokens at a time: less memory beside the logits")
    return (*((packs,) if case.batch.packing is None else ()), chunks)


def _assumed(case: Case, layout: Layout, tuning: bool) -> tuple[str, ...]:
    """Where the files stand for something else."""
    priced = (
        "Priced as Megatron-LM with Transformer Engine (`megatron-te`), by its calibration: no run of slime is among the evidence."
    )
    kept = (
        unsaved("--save", "--save-interval") + " Arguments of `run.sh` are passed on.",
        "slime drops flags that it does not know without a word. `meshwright check run.sh` finds them, but for those of SGLang "
        "(`--sglang-*`), whose table is SGLang's own.",
    )
    if tuning:
        return (
            priced, "A sample has up to the planned sequence; shorter ones take less of everything, and longer ones are not cut.",
            *kept,
        )
    samples, longest = samples_of(case), longest_tokens(case)
    responses = responses_for(samples)
    alone = " One response for each prompt is no group: choose a global batch that more divide." if responses == 1 else ""
    return (
        priced,
        f"A rollout is one optimizer step: {samples // responses} prompts (`--rollout-batch-size`) with {responses} responses each "
        f"(`--n-samples-per-prompt`), {samples} samples.{alone}",
        f"A sample is a prompt and its response: {longest // 4} + {longest - longest // 4} tokens; only the sum matters to the "
        "plan.",
        "Predicted is the policy's update. Rollout, log-probabilities, rewards and the exchange of weights are not: the engine "
        f"gets {percent(UTILIZATION, 0)} of each GPU while the trainer's state waits on the host, and sleeps while the policy is "
        "trained.",
        *kept,
    )
