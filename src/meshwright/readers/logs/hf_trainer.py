"""Hugging Face's Trainer, and those who build on it: dictionaries of figures, progress bars, and what it says when it begins."""

from __future__ import annotations

import json
import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.config_dump import keep, take_json
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft
from meshwright.readers.pairs import number

_DICTIONARY = re.compile(r"\{'(?:loss|train_runtime|eval_loss|train_loss)': .{0,2000}")
_FIELD = re.compile(r"'(\w{1,60})': '?([-\d.eE+naif]{1,30})'?")
_BAR = re.compile(r"\d{1,3}%\|[^|]{0,200}\| (\d{1,12})/(\d{1,12}) \[([\d:]{4,12})<[^,\]]{1,20}, {1,4}([\d.?]{1,12})(s/it|it/s)")
_BEGINS = re.compile(
    r"(Num examples|Num Epochs|Instantaneous batch size per device|Total train batch size|Gradient Accumulation steps"
    r"|Total optimization steps|Number of trainable parameters)[^=]{0,80}= {0,4}([\d,]{1,24})")
_NAMES = {
    "Num examples": "num_examples", "Num Epochs": "num_train_epochs",
    "Instantaneous batch size per device": "per_device_train_batch_size",
    "Total train batch size": "train_batch_size", "Gradient Accumulation steps": "gradient_accumulation_steps",
    "Total optimization steps": "max_steps", "Number of trainable parameters": "trainable_parameters",
}
_SUMMARY = {
    "train_runtime": "train_runtime_s", "train_samples_per_second": "samples_per_s", "train_steps_per_second": "steps_per_s",
    "epoch": "epoch", "train_loss": "train_loss", "train_tokens_per_second": "tokens_per_s_per_device", "total_flos": "total_flops",
}
_MODEL = re.compile(r"Model config \w{1,60} \{\s*$")
_OVERRIDES = re.compile(r"Overriding config: ([\w=.,+-]{1,2000})")
_OVERRIDE = re.compile(r"([a-z_]\w{1,60})=([\w.+-]{1,60})")
_ARGUMENTS = re.compile(r"\bTrainingArguments\((.{1,15000})")
_ARGUMENT = re.compile(r"\b([a-z]\w{2,60})=([^,()\[\]{}]{1,80})[,)]")


def _take(draft: Draft, hit: Hit) -> None:
    text, line = hit.line.text, hit.line.number
    if _MODEL.search(text) is not None or text.rstrip().endswith("json = {"):
        take_json(draft, hit, "deepspeed" if "json = {" in text else "model_config")
        return
    if (found := _OVERRIDES.search(text)) is not None:
        draft.state["overrides"] = dict(_OVERRIDE.findall(found[1]))
    if (found := _ARGUMENTS.search(text)) is not None:
        for name, value in _ARGUMENT.findall(found[1]):
            draft.setting(f"training_arguments.{name}", json.dumps(_value(value)))
    for name, value in _BEGINS.findall(text):
        draft.setting(_NAMES[name], value.replace(",", ""))
    bars = list(_BAR.finditer(text))
    for bar in bars[-1:]:
        _bar(draft, bar, line)
    for found in _DICTIONARY.finditer(text):
        fields = dict(_FIELD.findall(found[0]))
        if "train_runtime" in fields:
            for theirs, ours in _SUMMARY.items():
                draft.figure(ours, number(fields.get(theirs)))
        elif "loss" in fields:
            draft.state["losses"] = draft.state.get("losses", 0) + 1
            step = number(fields.get("step"))
            known = int(step) if step is not None else draft.open if "ends" in draft.state else draft.state["losses"]
            draft.step(known or 0, line, loss=number(fields["loss"]), at_s=None if "ends" in draft.state else at_s(text))


def _bar(draft: Draft, bar: re.Match[str], line: int) -> None:
    """Bars of evaluations and of loading have other ends than the training's."""
    done, whole, rate = int(bar[1]), int(bar[2]), number(bar[4])
    steps = number(draft.settings.get("max_steps"))
    ends = steps if steps is not None else draft.state.get("ends", whole)
    if rate is None or not done or whole != ends:
        return
    draft.state["ends"] = whole
    seconds = rate if bar[5] == "s/it" else 1 / rate if rate else None
    draft.step(done, line, step_s=seconds, at_s=_elapsed(bar[3]), sequences=number(draft.settings.get("train_batch_size")))


def _elapsed(text: str) -> float | None:
    parts = [number(each) for each in text.split(":")]
    seconds = 0.0
    for each in parts:
        if each is None:
            return None
        seconds = seconds * 60 + each
    return seconds


def _value(text: str) -> object:
    """What a program prints of a setting: a number, a truth, nothing, or a word."""
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    figure = number(text)
    return text if figure is None else int(figure) if figure == int(figure) and "." not in text and "e" not in text else figure


def _finish(draft: Draft) -> None:
    """The ranks are what the batch is of one rank's; losses belong to the step that the bar last showed.

    What run_clm.py overrides of a model's configuration holds, not what was loaded.
    """
    model = draft.state.get("dumps", {}).get("model_config", {})
    if model:
        model.update({f"model_config.{name}": json.dumps(_value(text)) for name, text in draft.state.get("overrides", {}).items()})
    keep(draft)
    batch, own = number(draft.settings.get("train_batch_size")), number(draft.settings.get("per_device_train_batch_size"))
    accumulated = number(draft.settings.get("gradient_accumulation_steps")) or 1.0
    if batch and own:
        draft.world = draft.world or round(batch / own / accumulated) or None
    if "ends" in draft.state:
        draft.note("Seconds of a step are those of the progress bar, a moving mean.")
    runtime, steps = draft.figures.get("train_runtime_s"), number(draft.settings.get("max_steps"))
    if runtime and steps:
        draft.figure("mean_step_s", runtime / steps)


DIALECT = Dialect(
    name="hf_trainer_log", says="logs of Hugging Face's Trainer and what builds on it", take=_take, finish=_finish,
    tells=re.compile(r"\{'(?:loss|train_runtime)': '?[-\d.nai]|\*\*\*\*\* Running training \*\*\*\*\*"),
    by=(b"{'loss': ", b"{'train_runtime': ", b"***** Running training"),
    seeks=(b"{'loss': ", b"{'train_runtime': ", b"Num examples", b"Num Epochs", b"batch size per device", b"Total train batch size",
           b"Gradient Accumulation steps", b"Total optimization steps", b"Number of trainable", b"s/it]", b"it/s]",
           b"Model config ", b"Overriding config: ", b"json = {", b"TrainingArguments("),
)
FORMAT = DIALECT.format
