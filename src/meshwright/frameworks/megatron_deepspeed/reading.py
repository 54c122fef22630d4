"""Megatron-DeepSpeed's flags and JSON as one layout: the JSON decides ZeRO and the batch, the flags everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import Setting, Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.errors import InputError, Message, fault
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of
from meshwright.frameworks.deepspeed.json_config import (
    batch_of,
    gradient_dtype_of,
    offload_of,
    overlaps_of,
    shards_of,
    stage_of,
    with_shards,
    without_auto,
)
from meshwright.frameworks.keys import told
from meshwright.frameworks.megatron_deepspeed.writing import KEYS
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.documents.source import Document, File
    from meshwright.documents.tree import TreeDocument

_FIGURES = {
    "--num-layers": "layers", "--hidden-size": "hidden", "--num-attention-heads": "heads",
    "--num-key-value-heads": "key_value_heads",
    "--kv-channels": "head_dim", "--ffn-hidden-size": "ffn", "--vocab-size": "vocabulary",
}


class EmbeddedDocument(Struct, frozen=True, kw_only=True):
    """A JSON that a script writes before it launches."""

    path: str
    text: str
    tree: TreeDocument
    line: int

    def settings(self) -> Mapping[str, Setting]:
        """Its values, at the lines of the script."""
        found = self.tree.settings()
        return {key: replace(setting, file=self.path, line=setting.line + self.line - 1) for key, setting in found.items()}

    def changed(self, edits: Mapping[str, object]) -> str:
        """Errors: always ``InputError``, as its text is composed by the script."""
        raise fault("edit.embedded", "{keys} stand in a JSON that the script itself writes: change them there by hand",
                    path=self.path, keys=", ".join(edits))


def open_run(files: Sequence[File]) -> Source:
    """Files as a source; a JSON that a script writes counts like one beside it."""
    from meshwright.documents.launch import LaunchDocument
    from meshwright.documents.opening import open_source

    source = open_source(files)
    if any("zero_optimization" in key or key == "train_batch_size" for key in source.settings):
        return source
    settings, documents, remarks = dict(source.settings), list[object](source.documents), list(source.remarks)
    for document in source.documents:
        if isinstance(document, LaunchDocument):
            for name, (text, line) in document.shell.embedded.items():
                found = _embedded(document.path, name, text, line)
                if isinstance(found, Message):
                    remarks.append(found)
                elif found is not None:
                    documents.append(found)
                    settings |= {key: setting for key, setting in found.settings().items() if key not in settings}
    return replace(source, settings=settings, documents=_documents(documents), remarks=tuple(remarks))


def _documents(found: list[object]) -> tuple[Document, ...]:
    """Documents of either kind."""
    return tuple(found)  # type: ignore[arg-type]


def _embedded(path: str, name: str, text: str, line: int) -> EmbeddedDocument | Message | None:
    """What a script writes, if it is a configuration; a message where it looks like one and is none."""
    from meshwright.documents.tree import parse_json_with_comments

    if not text.lstrip().startswith("{"):
        return None
    try:
        tree, _ = parse_json_with_comments(text, path=f"{path}:{name}")
    except InputError as error:
        return Message("import.embedded", "the JSON that the script writes to {name} cannot be read: {why}",
                       {"name": name, "why": str(error)}, f"{path}:{line}")
    return EmbeddedDocument(path=f"{path}:{name}", text=text, tree=tree, line=line)


def interpret(source: Source, given: Given, release: str) -> Reading:
    """Flags and JSON as Megatron-DeepSpeed understands them."""
    from meshwright.frameworks.megatron_deepspeed import surface

    values = Values(source=without_auto(source), surface=surface(), release=release)
    tp, pp, cp = (told(KEYS, values, knob) for knob in ("tensor_parallel", "pipeline_parallel", "context_parallel"))
    world = world_of(values, given)
    dp = data_parallel_of(values, world, tp * pp * cp)
    batch = batch_of(values, dp)
    mb = batch.microbatch or values.int("--micro-batch-size") or 0
    if not mb:
        values.refuse("import.microbatch", "neither --micro-batch-size nor train_micro_batch_size_per_gpu says the micro-batch")
    total = batch.batch or values.int("--global-batch-size") or given.global_batch_sequences or (mb * dp if dp else None)
    steps = microbatches_of(values, total, mb or 1, dp)
    ep = max(1, values.int("--moe-expert-parallel-size") or 1)
    experts = [count for count in values.words("--num-experts") if count != "1"]
    layout = None
    if dp is not None and steps is not None and mb:
        layout = with_shards(Layout(
            tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel") and tp > 1, context_parallel=cp,
            context_kind="ulysses" if cp > 1 else "ring", pipeline_parallel=pp, expert_parallel=ep if experts else 1,
            expert_tensor_parallel=tp if experts and values.bool("--enable-expert-tensor-parallelism") else 1,
            data_parallel=dp, microbatch_sequences=mb, num_microbatches=steps,
            recompute=_recompute(values), offload=offload_of(values),
            attention="flash" if any(values.bool(flag) for flag in FUSED) else None, overlap=_overlap(values),
        ), _shards(values, dp * cp))
    said = Said(
        devices=world, global_batch_sequences=total, sequence_tokens=values.int("--seq-length"),
        precision="bf16" if values.bool("--bf16") else "fp16" if values.bool("--fp16") else None,
        gradient_dtype=gradient_dtype_of(values),
        optimizer={"adam": "adamw", "sgd": "sgd"}.get(values.text("--optimizer", "adam")), task="pretrain",
        figures=_figures(values),
    )
    return Reading(
        framework="megatron-deepspeed", version=release, source=values.source, said=said,
        layout=None if values.messages else layout, messages=tuple(values.messages),
    )


FUSED = tuple(f"--use-flash-attn{kind}" for kind in ("", "-v1", "-v2", "-triton", "-builder"))
"""Flags of the packages that fuse attention, any of which does."""


def _shards(values: Values, ranks: int) -> Mapping[str, int]:
    """As the JSON has it; where no JSON is known, as ``--zero-stage`` or ``--use-distributed-optimizer`` says."""
    from meshwright.frameworks.compose import zero_shards

    if values.has("zero_optimization.stage") or values.has("zero_optimization"):
        return shards_of(values, ranks)
    stage = (
        (values.int("--zero-stage") or 0)
        if values.bool("--deepspeed") or values.has("--deepspeed_config")
        else int(values.bool("--use-distributed-optimizer"))
    )
    return zero_shards(stage, ranks)


def uses_pipeline_engine(values: Values) -> bool:
    """DeepSpeed's PipelineEngine runs even at one stage, unless it is switched off."""
    return (values.bool("--deepspeed") or values.has("--deepspeed_config")) and not values.bool("--no-pipeline-parallel")


def _recompute(values: Values) -> Recompute:
    """Old and new spellings; the pipeline engine knows the uniform method only."""
    granularity = values.text("--recompute-granularity") or ("selective" if values.bool("--recompute-activations") else "")
    method = values.text("--recompute-method")
    if values.bool("--checkpoint-activations"):
        return Full()
    if granularity == "full" and method == "block":
        return NoRecompute() if uses_pipeline_engine(values) else Full(layers=values.int("--recompute-num-layers", 1))
    if granularity == "full":
        return Full()
    return Selective() if granularity == "selective" else NoRecompute()


def _overlap(values: Values) -> Overlap:
    """The pipeline engine switches overlapped communication off."""
    grad = overlaps_of(values) and not uses_pipeline_engine(values)
    return Overlap(
        gradient_reduce=grad, parameter_gather=grad and stage_of(values) == 3, tensor=False, point_to_point=False, expert=False
    )


def _figures(values: Values) -> dict[str, object]:
    """The model as far as the flags say it."""
    found: dict[str, object] = {name: values.int(key) for key, name in _FIGURES.items() if values.int(key) is not None}
    experts = [int(count) for count in values.words("--num-experts")]
    if experts and max(experts) > 1:
        found |= {"experts": max(experts), "experts_per_token": values.int("--topk", 1)}
    if values.has("--num-layers"):
        found["tied_embeddings"] = not values.bool("--untie-embeddings-and-output-weights")
    return found
