"""What the README and the launch script beside ChatLearn's YAML say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.frameworks.chatlearn.deciding import is_packed, longest_tokens, packing_limit, rank_samples
from meshwright.frameworks.chatlearn.limits import COMMIT, GROUPED_EXPERTS, is_fsdp
from meshwright.frameworks.chatlearn.packing import limit_for
from meshwright.frameworks.chatlearn.patch import FILE
from meshwright.frameworks.hub import hub_name, hub_words
from meshwright.frameworks.manual import Blank, Manual, Switch, Variable, start_commands

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout


def manual_of(case: Case, layout: Layout, *, patched: bool) -> Manual:
    """What the README and the launch script say."""
    fsdp = is_fsdp(layout)
    model = hub_name(case.model)
    trainer = Shell("$HF_MODEL") if fsdp else "/path/to/megatron/checkpoint"
    paths = "CHATLEARN=/path/to/ChatLearn" + ("" if fsdp else " MEGATRON_PATH=/path/to/Megatron-LM")
    blanks = [Blank(name="CHATLEARN", default=Shell("$PWD"), what=f"checkout of ChatLearn at {COMMIT}")]
    if not fsdp:
        blanks.append(
            Blank(name="MEGATRON_PATH", default=Shell("$CHATLEARN/../Megatron-LM"),
                  what="the Megatron-LM that ChatLearn's scripts name")
        )
    blanks += [
        Blank(name="HF_MODEL", default=model, what=_folder(case)),
        Blank(name="TRAINER_MODEL", default=trainer, what="what the trainer starts from"),
        Blank(name="DATA_PATH", default="data/train.json", what="prompts to train on"),
        Blank(name="EVAL_DATA_PATH", default="data/test.json", what="prompts to evaluate on"),
        Blank(name="OUTPUT_DIR", default=Shell("$HERE/output"), what="logs and checkpoints, beside launch.sh"),
    ]
    variables = [
        Variable(
            name="PYTHONPATH",
            value=Shell("$CHATLEARN${MEGATRON_PATH:+:$MEGATRON_PATH}${PYTHONPATH:+:$PYTHONPATH}"),
            reason="both are run from their checkouts",
        ),
        Variable(name="RAY_DEDUP_LOGS", value="0", reason="each worker's errors are seen"),
        Variable(
            name="CUSTOM_PORTS",
            value=Shell("$(seq -s ';' 30010 30050)"),
            reason="ports of the workers, as ChatLearn's base_env.sh gives them",
        ),
    ]
    if not fsdp:
        variables.append(
            Variable(
                name="CUDA_DEVICE_MAX_CONNECTIONS", value="1", reason="Megatron-LM demands it for tensor and context parallelism"
            )
        )
    return Manual(
        title=f"ChatLearn {COMMIT}{' (FSDP)' if fsdp else ''}", needs=_needs(layout, patched=patched),
        commands=start_commands(layout, case, before=paths),
        blanks=tuple(blanks), variables=tuple(variables), off=_off(layout), assumed=_assumed(case, layout),
        probe="" if fsdp else _PROBE,
    )


def _folder(case: Case) -> str:
    """What the folder of the model holds."""
    layers = "" if " with " not in hub_words(case.model) else f"; its config.json says {case.model.num_layers} layers"
    return f"folder of the Hugging Face model (rollout and model shapes){layers}"


_PROBE = (
    "ChatLearn has no dry run. Measure the trainer's fullest stage with Megatron-LM's own probe (`--fake-process-group`, from "
    "core 0.16 on) and the same degrees: `meshwright export PLAN --to megatron --out DIR` writes it. Or run one episode here and "
    "read `max_memory_allocated` of the ranks of that stage; `meshwright estimate --request plan.yaml --anchor-memory STAGE=BYTES` "
    "takes it."
)


def _needs(layout: Layout, *, patched: bool) -> str:
    """What must be there beside the checkout."""
    if not patched:
        return "Start it on every node; Ray is started by ChatLearn."
    what = 'declares fields that `MegatronConfig` lacks; without it the YAML is refused ("got an unexpected keyword argument")'
    if layout.virtual_stages > 1:
        what = (
            "gives each model chunk its own data, without which the interleaved schedule stops in the first step, and adds fields"
        )
    first = f'First `git -C /path/to/ChatLearn apply "$PWD/{FILE}"`, at that commit: the patch {what}.'
    return f"Start it on every node; Ray is started by ChatLearn. {first}"


def _off(layout: Layout) -> tuple[Switch, ...]:
    """Faster things that stay off."""
    if is_fsdp(layout):
        return ()
    return (
        Switch(
            name="overlap_grad_reduce",
            risk="exact",
            what="needs no_sync_func in ChatLearn's own step, which it never sets: not offered",
        ),
        Switch(name="models.policy_trainer.gradient_accumulation_fusion", risk="exact", what="needs Apex' CUDA extension"),
        Switch(name="tp_comm_overlap", risk="equivalent", what="needs the patch, and batches of one shape (packing off)"),
    )


def _assumed(case: Case, layout: Layout) -> tuple[str, ...]:
    """Where the files stand for something else."""
    sequence, packing = case.batch.sequence_tokens, case.batch.packing
    remarks = [
        f"A sequence is a prompt and its response: {sequence // 4} + {sequence - sequence // 4} tokens; only the sum matters to "
        "the plan.",
        "Rollout (`models.policy`), reward, learning rate and episodes are not planned: their values are those of ChatLearn's "
        "template or must be set.",
        "The prediction is of the trainer's step on full sequences; shorter responses pack into fewer micro-batches."
        if packing is None
        else f"The prediction is of the trainer's step on packed samples, {packing.samples_per_sequence:.3g} in {sequence} tokens, "
        "as long as those of the plan; others pack into more or fewer micro-batches.",
    ]
    if is_packed(layout):
        remarks.append(_packed(case, layout))
    else:
        remarks.append("Packing is off: the chosen kernels need batches of one shape.")
    if is_fsdp(layout) and case.model.is_moe and case.model.architecture not in GROUPED_EXPERTS:
        remarks.append(f"ChatLearn has no groupgemm for {case.model.architecture}: its experts run one by one, and the prediction "
                       "does not count what that costs.")
    if case.model.num_mtp_layers:
        remarks.append("ChatLearn builds no multi-token-prediction layers: the prediction includes them.")
    return tuple(remarks)


def _packed(case: Case, layout: Layout) -> str:
    """What the limit of the trainer keeps, and what that costs."""
    longest, tokens = longest_tokens(case), layout.microbatch_sequences * case.batch.sequence_tokens
    full = limit_for(1, tokens)
    return (
        f"`max_token_in_packing` is {packing_limit(case, layout)}: whatever the lengths of the {rank_samples(case, layout)} "
        f"samples of a rank, of at most {longest} tokens, no micro-batch has more than {tokens} tokens, which the plan has memory "
        "for. ChatLearn's second packing pass looks at no limit and may go a third above it; padding comes on top. A "
        "sample above the limit has a micro-batch of its own (ChatLearn warns). Where there is memory to spare, "
        f"{full} packs as many of the longest samples as the plan says, {tokens // longest} in a micro-batch."
    )
