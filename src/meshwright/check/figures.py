"""What the files say of the case against what was asked for: the model's figures, devices, batch, sequence, numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.catalog import load_model, models
from meshwright.check.context import finding
from meshwright.domain.launch import launch_words
from meshwright.domain.model import Mlp
from meshwright.errors import Message
from meshwright.frameworks.launching import said_settings
from meshwright.frameworks.megatron.hybrid import is_hybrid, letters
from meshwright.perf.parameters import padded_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.check.context import Context
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks.settings import Finding, Reading

_NOUNS = {
    "devices": "devices", "global_batch_sequences": "sequences a step", "sequence_tokens": "tokens of a sequence",
    "precision": "precision", "gradient_dtype": "gradients in", "optimizer": "optimizer", "task": "task", "launch": "launch",
}
_UNTOLD = frozenset({"mixtures"})
"""A figure of every layer: models are recognised by it, and no message holds it."""
_ENOUGH = frozenset({"layers", "hidden", "heads"})
"""Figures without which no model is recognised."""


def figures_of(model: Model) -> Mapping[str, object]:
    """A model by the names of ``Said.figures``, as far as they hold for the whole of it."""
    attention, experts = model.attention, model.experts
    dense = next((kind.feed_forward for kind in model.kinds if isinstance(kind.feed_forward, Mlp) and kind.has_block), None)
    found: dict[str, object] = {
        "layers": model.num_layers, "hidden": model.hidden, "heads": attention.num_heads,
        "key_value_heads": attention.num_key_value_heads, "head_dim": attention.head_dim, "vocabulary": model.vocabulary,
        "mtp_layers": model.mtp_passes, "mtp_shared": model.shares_mtp, "tied_embeddings": model.tied_embeddings,
        "latent_attention": attention.latent is not None,
        "windowed": any(each.window_tokens for each in model.attentions),
    }
    if len({kind.feed_forward.gated for kind in model.kinds if kind.has_block}) == 1:
        found["gated"] = model.feed_forward.gated
    if is_hybrid(model):
        found["blocks"] = "".join(letters(model))
    if attention.latent is not None:  # every query has its own key; frameworks differ in what they write there
        del found["key_value_heads"], found["head_dim"]
    if dense is not None:
        found["ffn"] = dense.width
    if experts is not None:
        found |= {
            "experts": experts.num_experts, "experts_per_token": experts.experts_per_token, "expert_ffn": experts.expert_width,
            "shared_ffn": experts.shared_width, "mixtures": tuple(model.kinds[kind].experts is not None for kind in model.pattern),
        }
    elif dense is not None:
        found["experts"] = 0
    return found


def same(name: str, said: object, known: object, tensor_parallel: int = 1) -> bool:
    """Whether a figure of the files is that of the model; a padded vocabulary is."""
    if said == known:
        return True
    if name == "experts":
        return not said and not known
    if name != "vocabulary" or not isinstance(said, int) or not isinstance(known, int):
        return False
    return any(said == int(padded_vocabulary(known, tp=tensor_parallel, multiple=multiple)) for multiple in (1, 8, 64, 128, 256))


def model_figures(context: Context) -> Iterator[Finding]:
    """Figures that are not those of the model that was named."""
    model = context.question.model
    if model is None:
        return
    for name, said, known in _others(context.reading, model, context.layout.tensor_parallel if context.layout else 1):
        yield finding(
            "warning" if name == "vocabulary" else "error", "check.model-figure",
            "{name} is {value}, {model} has {expected}", name=name, model=model.name, value=said,
            expected=known, source=f"the catalogue's {model.name}",
        )


def _others(reading: Reading, model: Model, tensor_parallel: int) -> Iterator[tuple[str, object, object]]:
    """Figures of the files that are not the model's: name, theirs, its."""
    known = figures_of(model)
    for name, said in reading.said.figures.items():
        if name in known and name not in _UNTOLD and not same(name, said, known[name], tensor_parallel):
            yield name, said, known[name]


def of_another_case(reading: Reading, case: Case, layout: Layout) -> tuple[Message, ...]:
    """What files say of model and batch that is not the case's; they keep it whatever layout is put into them."""
    figures = [f"{name} {said}, not {known}" for name, said, known in _others(reading, case.model, layout.tensor_parallel)]
    steps = (
        (_NOUNS[name], getattr(reading.said, name), getattr(case.batch, name))
        for name in ("global_batch_sequences", "sequence_tokens")
        if case.batch.packing is None  # else some frameworks count samples, and others packs
    )
    batch = [f"{noun} {said:,}, not {known:,}" for noun, said, known in steps if said is not None and said != known]
    return tuple(
        Message(id_, "the files keep {what} than the plan is for: {differing}", {"what": what, "differing": "; ".join(differing)})
        for id_, what, differing in (("edit.model", "another model", figures), ("edit.batch", "another batch", batch)) if differing
    )


def contradictions(context: Context) -> Iterator[Finding]:
    """What the user asks for and the files say otherwise: the user wins, so the files do not do what is judged."""
    said, starts = context.reading.said, context.question.starts
    said_devices = said.devices if starts is None else starts
    for name, wanted in context.question.asked.items():
        value, asked = said_devices if name == "devices" else getattr(said, name, None), wanted
        if name == "launch":
            value, asked = _differing(said.launch, str(wanted))
        if value is not None and value != asked:
            yield finding(
                "error", "check.contradiction", "{noun}: the files say {value}, the command line {expected}, which is judged",
                noun=_NOUNS[name], value=value, expected=asked,
            )
    model = context.question.model
    if said.model is not None and model is not None and model.name not in (said.model, f"{said.model}-{model.num_layers}l"):
        yield finding(
            "error", "check.contradiction", "{noun}: the files say {value}, the command line {expected}, which is judged",
            noun="model", value=said.model, expected=model.name,
        )
    case = context.case
    have = context.question.num_devices if case is None else case.cluster.num_devices
    if have is not None and said_devices not in (None, have) and "devices" not in context.question.asked:
        yield finding(
            "error" if said_devices > have else "warning", "check.devices",
            "the files start {value} processes, the cluster has {expected} devices", value=said_devices, expected=have,
        )


def _differing(said: str | None, asked: str) -> tuple[str | None, str]:
    """Settings of a launch that files and the command line both say, and differently; no settings where there are none."""
    own, wanted = said_settings(said), said_settings(asked)
    names = [name for name in wanted if own.get(name, wanted[name]) != wanted[name]]
    return launch_words({name: own[name] for name in names}) or None, launch_words({name: wanted[name] for name in names})


def likely_models(reading: Reading) -> tuple[str, ...]:
    """Models of the catalogue with exactly the figures of the files; none where too few stand there."""
    figures = reading.said.figures
    if not figures.keys() >= _ENOUGH:
        return ()
    tp = reading.layout.tensor_parallel if reading.layout else 1
    found = []
    for name in models():
        known = figures_of(load_model(name))
        if "blocks" in known and "blocks" not in figures:
            continue  # files without a pattern are of no hybrid, whatever its widths
        if all(same(each, said, known[each], tp) for each, said in figures.items() if each in known):
            found.append(name)
    return tuple(found)
