"""What the README and the script beside a plan for verl say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.frameworks.hub import hub_name, hub_words
from meshwright.frameworks.manual import Blank, Manual, Switch, Variable, start_commands
from meshwright.frameworks.verl.batch import cap_for, longest_tokens, responses_for, samples_of
from meshwright.frameworks.verl.keys import MCORE, is_tuning
from meshwright.frameworks.verl.rollout import UTILIZATION
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

TITLES = {MCORE: "verl (Megatron)", "fsdp": "verl (FSDP)"}
COMMITS = {"0.8": "volcengine/verl b178a3cd", "0.10": "verl-project/verl 1dda039b9"}


def manual_of(engine: str, case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    tuning = is_tuning(case)
    blanks = (
        Blank(name="MODEL_PATH", default=hub_name(case.model), what=_folder(case)),
        Blank(name="TRAIN_FILES", default=Shell("$HOME/data/gsm8k/train.parquet"), what="as verl's data_preprocess makes it"),
        Blank(name="VAL_FILES", default=Shell("$HOME/data/gsm8k/test.parquet"), what="what is validated on"),
        Blank(name="LEARNING_RATE", default="1e-5" if tuning else "1e-6", what="Meshwright does not choose it"),
        Blank(name="EXPERIMENT", default="plan", what="name of the run"),
        Blank(name="CHECKPOINT_DIR", default="checkpoints/plan", what="of this plan alone"),
        Blank(name="SAVE_STEPS", default="-1", what="steps between two checkpoints; -1: none is saved"),
    )
    connections = Variable(
        name="CUDA_DEVICE_MAX_CONNECTIONS", value="1", reason="Megatron-Core wants it for tensor and context parallelism"
    )
    return Manual(
        title=f"{TITLES[engine]} {release}", needs=_needs(engine, layout, case, release),
        commands=start_commands(layout, case, "run.sh"), blanks=blanks,
        variables=(connections,) if engine == MCORE else (),
        off=_off(engine, case, layout), assumed=_assumed(engine, case, layout),
        probe="" if engine == "fsdp" else _PROBE,
    )


_PROBE = (
    "verl has no dry run. Measure the trainer's fullest stage with Megatron-LM's own probe (`--fake-process-group`, from core 0.16 "
    "on) and the same degrees: `meshwright export PLAN --to megatron --out DIR` writes it. "
    "`meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES` takes what it measures."
)


def _folder(case: Case) -> str:
    """What the model is, and how many layers of it are meant."""
    layers = "" if " with " not in hub_words(case.model) else f"; its config.json says {case.model.num_layers} layers"
    return f"Hugging Face name or folder{layers}"


def _needs(engine: str, layout: Layout, case: Case, release: str) -> str:
    """What must be installed, and who starts what."""
    below = "Megatron-Core with Megatron-Bridge and " if engine == MCORE else ""
    packages = f"verl {release} ({COMMITS[release]}) with {below}{'torch' if is_tuning(case) else 'vLLM and Ray'}."
    several = " Start it on every node: the first becomes Ray's head and trains once the others have joined."
    return packages + (several if not is_tuning(case) and layout.world > case.cluster.devices_per_node else "")


def _off(engine: str, case: Case, layout: Layout) -> tuple[Switch, ...]:
    """Faster things that stay off."""
    cap = cap_for(layout.microbatch_sequences, case.batch.sequence_tokens, layout.context_parallel)
    key = "data.use_dynamic_bsz" if is_tuning(case) else "actor_rollout_ref.actor.use_dynamic_bsz"
    packs = Switch(
        name=f"{key}=True", risk="equivalent", what=f"packs short samples together, {cap} tokens on a GPU: fewer micro-batches. "
        "verl only aims at that count, so one may become larger than planned",
    )
    fused = Switch(name="use_fused_kernels", risk="equivalent", what="log-probabilities without whole logits")
    return (*((packs,) if case.batch.packing is None else ()), fused)


def _assumed(engine: str, case: Case, layout: Layout) -> tuple[str, ...]:
    """Where the files stand for something else."""
    priced = (
        "Priced as Megatron-LM with Transformer Engine (`megatron-te`), by its calibration: no run of verl is among the evidence."
        if engine == MCORE else
        "Priced as another trainer's FSDP2 over Hugging Face modules (`chatlearn-fsdp`), uncalibrated for verl: no run of it is "
        "among the evidence."
    )
    if is_tuning(case):
        return (priced, "A sample has up to the planned sequence; shorter ones take less of everything.")
    samples, longest = samples_of(case), longest_tokens(case)
    responses = responses_for(samples)
    alone = " One response for each prompt is no group: choose a global batch that more divide." if responses == 1 else ""
    return (
        priced,
        f"An optimizer step is {samples // responses} prompts (`ppo_mini_batch_size`) with {responses} responses each "
        f"(`rollout.n`): {samples} samples.{alone}",
        f"A sample is a prompt and its response: {longest // 4} + {longest - longest // 4} tokens; only the sum matters to the "
        "plan.",
        "Predicted is the policy's update. Rollout, log-probabilities, rewards and the exchange of weights are not: the engine "
        f"gets {percent(UTILIZATION, 0)} of each GPU while the trainer's state waits on the host, and sleeps while the policy is "
        "trained.",
    )
