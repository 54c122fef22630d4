"""NeMo-RL: a headed block for each step of reinforcement learning, its seconds as a list, the longest first.

Numbers of steps begin anew with each epoch. Idle times that lie inside other timers are left out.
"""

from __future__ import annotations

import re

from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, settings_said, world_by_rates
from meshwright.readers.pairs import number

_STEP = re.compile(r"={5,60} Step (\d{1,12})/\d{1,12} ={5,60}")
_WHOLE = re.compile(r"Total step time: ([\d.]{1,20})s")
_TIMER = re.compile(r"\u2022 ([a-z][\w/]{2,80}): ([\d.]{1,20})s \(")
_FIGURE = re.compile(r"[\u2022\-] (Loss|Mean Generation Length|E2E \(Tokens/sec(?:/gpu)?\)): ([-+.\w]{1,40})")
_TIMERS = (
    "generation", "exposed_generation", "policy_and_reference_logprobs", "policy_training", "data_processing", "reward_calculation",
    "advantage_calculation", "logprob_inference", "teacher_logprob_inference", "training_prep", "value_inference", "value_training",
    "prepare_for_generation", "weight_sync", "checkpointing", "offload_before_refit", "policy_offload_after_refit",
    "idle/validation",
)
_SAID = ("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt", "policy.train_global_batch_size")
_LOSS, _LENGTH, _RATE, _RATE_OF_ALL = "Loss", "Mean Generation Length", "E2E (Tokens/sec/gpu)", "E2E (Tokens/sec)"


def _take(draft: Draft, hit: Hit) -> None:
    text, line, state = hit.whole, hit.line.number, draft.state
    settings_said(draft, text, _SAID)
    if (headed := _STEP.search(text)) is not None:
        shown = int(headed[1])
        if shown <= state.get("shown", -1):
            state["epochs"] = state.get("epochs", 0) + state["shown"]
        state.update(shown=shown, number=shown + state.get("epochs", 0))
    step = state.get("number")
    if step is None:
        return
    state.update({name: number(value) for name, value in _FIGURE.findall(text)})
    if (whole := _WHOLE.search(text)) is not None:
        draft.step(step, line, step_s=number(whole[1]), loss=state.pop(_LOSS, None), response_mean_tokens=state.pop(_LENGTH, None))
    if step not in draft.steps:
        return
    if (timer := _TIMER.search(text)) is not None and (seconds := number(timer[2])) is not None:
        draft.timer(timer[1], seconds, seconds, line)
    rate, step_s = state.pop(_RATE_OF_ALL, None), draft.steps[step].get("step_s")
    draft.step(step, line, tokens_per_s_per_device=state.pop(_RATE, None), tokens=rate * step_s if rate and step_s else None)


DIALECT = Dialect(
    name="nemo_rl_log", says="logs of NeMo-RL", framework="nemo-rl", take=_take, finish=world_by_rates, tells=_WHOLE,
    by=(b"Total step time: ",),
    seeks=(b"==== Step ", b"Total step time: ", b"Mean Generation Length", b"E2E (Tokens/sec", "\u2022 Loss: ".encode(),
           *(f" {name}".encode() for name in _TIMERS), *(key.rpartition(".")[2].encode() for key in _SAID)),
)
FORMAT = DIALECT.format
