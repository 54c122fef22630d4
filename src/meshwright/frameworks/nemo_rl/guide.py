"""What the README and the script beside a plan for NeMo-RL say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.frameworks.hub import hub_name, hub_words
from meshwright.frameworks.manual import Blank, Manual, Switch, Variable, start_commands, unsaved
from meshwright.frameworks.nemo_rl.keys import MEGATRON, PACKING, is_tuning
from meshwright.frameworks.verl.batch import longest_tokens, responses_for, samples_of
from meshwright.frameworks.verl.rollout import UTILIZATION
from meshwright.words import percent

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

TITLES = {MEGATRON: "NeMo-RL (Megatron)", "policy.dtensor_cfg": "NeMo-RL (DTensor)"}
ARCHITECTURES = "8.0 9.0 10.0"
"""Of A100, H100 and B200, for kernels that are built where the job starts."""


def manual_of(section: str, case: Case, layout: Layout, release: str) -> Manual:
    """What the README and the launch script say."""
    tuning = is_tuning(case)
    blanks = (
        Blank(name="NEMO_RL", default="", what="folder of NeMo-RL's checkout, whose recipe the files build on"),
        Blank(name="MODEL_PATH", default=hub_name(case.model), what=_folder(case)),
        Blank(name="LEARNING_RATE", default="1e-5" if tuning else "1e-6", what="Meshwright does not choose it"),
        Blank(name="CHECKPOINT_DIR", default=Shell("$HERE/checkpoints"), what="of this plan alone; nothing is saved as it is"),
    )
    return Manual(
        title=f"{TITLES[section]} {release}", needs=_needs(section, layout, case, release),
        commands=start_commands(layout, case, "run.sh", before="NEMO_RL=/path/to/RL"), blanks=blanks,
        variables=(Variable(name="TORCH_CUDA_ARCH_LIST", value=Shell(f"${{TORCH_CUDA_ARCH_LIST:-{ARCHITECTURES}}}"),
                            reason="NeMo-RL does not start without it outside of its container"),),
        off=_off(case), assumed=_assumed(section, case), probe=_PROBE if section == MEGATRON else "",
    )


_PROBE = (
    "NeMo-RL has no dry run. Measure the trainer's fullest stage with Megatron-LM's own probe (`--fake-process-group`, from core "
    "0.16 "
    "on) and the same degrees: `meshwright export PLAN --to megatron --out DIR` writes it. "
    "`meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES` takes what it measures."
)


def _folder(case: Case) -> str:
    """What the model is, and how many layers of it are meant."""
    layers = "" if " with " not in hub_words(case.model) else f"; its config.json says {case.model.num_layers} layers"
    return f"Hugging Face name or folder{layers}"


def _needs(section: str, layout: Layout, case: Case, release: str) -> str:
    """What must be installed, and who starts what."""
    below = "Megatron-Bridge" if section == MEGATRON else "NeMo Automodel"
    packages = f"NeMo-RL {release} (NVIDIA-NeMo/RL 7ea279ab, with its submodules) and uv, which installs {below} for the workers."
    several = " Start it on every node: the first becomes Ray's head and trains once the others have joined."
    return packages + (several if layout.world > case.cluster.devices_per_node else "")


def _off(case: Case) -> tuple[Switch, ...]:
    """Faster things that stay off."""
    packs = Switch(
        name=f"{PACKING}.enabled=true", risk="equivalent",
        what="packs short samples together, up to the planned micro-batch of tokens: fewer micro-batches",
    )
    rollout = Switch(name="policy.generation.vllm_cfg.async_engine=true", risk="equivalent", what="generates sample by sample")
    return (*((packs,) if case.batch.packing is None else ()), *(() if is_tuning(case) else (rollout,)))


def _assumed(section: str, case: Case) -> tuple[str, ...]:
    """Where the files stand for something else."""
    priced = (
        "Priced as Megatron-LM with Transformer Engine (`megatron-te`), by its calibration: no run of NeMo-RL is among the "
        "evidence."
        if section == MEGATRON else
        "Priced as another trainer's FSDP2 over Hugging Face modules (`chatlearn-fsdp`), uncalibrated for NeMo-RL: no run of it is "
        "among the evidence."
    )
    kept = unsaved("checkpointing.enabled")
    if is_tuning(case):
        return (priced, "A sample has up to the planned sequence; shorter ones take less of everything.", kept)
    samples, longest = samples_of(case), longest_tokens(case)
    responses = responses_for(samples)
    alone = " One response for each prompt is no group: choose a global batch that more divide." if responses == 1 else ""
    return (
        priced,
        f"A step is {samples // responses} prompts (`num_prompts_per_step`) with {responses} generations each: {samples} samples, "
        f"and one update (`train_global_batch_size`).{alone}",
        f"A sample is a prompt and its response, {longest} tokens together (`max_total_sequence_length`).",
        "Predicted is the policy's update. Generation, log-probabilities, rewards and the exchange of weights are not: the engine "
        f"gets {percent(UTILIZATION, 0)} of each GPU while the trainer's state waits on the host, and sleeps while the policy is "
        "trained. The reference's weights wait on the host, too.",
        kept,
    )
