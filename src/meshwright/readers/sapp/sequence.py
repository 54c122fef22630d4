"""What splitting the sequence changes in the memories of a layer file, as SAPP has it (seq-1F1B).

Source: mindspore-ai/toolkits e0486ee, ``pipeline_balance/sapp/sapp_solver.py`` (compute_seq_mem_*) and
``utils/config.py`` (parse_training_config).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import InputError
from meshwright.readers.fields import Fields
from meshwright.readers.safe import require_mapping
from meshwright.readers.safe_yaml import load_yaml
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.balance import Body, End

HALF_BYTES = 2
SINGLE_BYTES = 4
MIB = 2**20
FEED_FORWARD_WIDTH = 11008
"""SAPP's head formula without tensor parallelism takes Llama-2-7B's width for every model."""


class SequenceShape(Value, frozen=True, kw_only=True):
    """The sizes of a model and its batch that a split of the sequence depends on."""

    batch_size: int
    sequence_tokens: int
    hidden: int
    heads: int
    vocabulary: int
    tensor_parallel: int = 1

    @property
    def hidden_mb(self) -> float:
        """One activation of the hidden width in half precision, on all ranks together."""
        return HALF_BYTES * self.batch_size * self.sequence_tokens * self.hidden / MIB

    @property
    def key_mb(self) -> float:
        """Keys of one layer on one rank; values are as large (SAPP counts every head: no grouped queries)."""
        width = self.heads * (self.hidden // self.heads)
        return HALF_BYTES * self.batch_size * self.sequence_tokens * width / self.tensor_parallel / MIB

    @property
    def logits_mb(self) -> float:
        """Logits in single precision on one rank."""
        return SINGLE_BYTES * self.batch_size * self.sequence_tokens * self.vocabulary / self.tensor_parallel / MIB


def read_sequence_shape(path: Path | str) -> SequenceShape:
    """The sizes from a MindFormers training configuration, where SAPP takes them from."""
    top = Fields(require_mapping(load_yaml(path), str(path)), str(path))
    model, parallel, runner = top.inner("model").inner("model_config"), top.inner("parallel_config"), top.inner("runner_config")
    shape = SequenceShape(
        batch_size=runner.size("batch_size"), sequence_tokens=model.size("seq_length"), hidden=model.size("hidden_size"),
        heads=model.size("num_heads"), vocabulary=model.size("vocab_size"),
        tensor_parallel=parallel.size("model_parallel", default=1),
    )
    if top.faults:
        raise InputError(top.faults)
    return shape


def split_body(body: Body, treatments: tuple[str, ...], splits: int, shape: SequenceShape) -> Body:
    """A body for one of ``splits`` splits of the sequence; full recomputation does not exist there.

        time / k;   M_par + 4 K;   act = (act - K - V) / k + 2 (K + V) / 2

    Symbols: k splits; K, V keys and values of the whole sequence, alike in size.
    """
    kept = [place for place, name in enumerate(treatments) if name != "full"]
    pair = 2 * shape.key_mb
    return replace(
        body,
        forward_time=body.forward_time / splits,
        backward_times=tuple(body.backward_times[place] / splits for place in kept),
        weight_time=body.weight_time / splits,
        static_memory=body.static_memory + 2 * pair,
        activation_memory=tuple((body.activation_memory[place] - pair) / splits + pair for place in kept),
    )


def split_first(end: End, splits: int, shape: SequenceShape) -> End:
    """The head: communication buffers and gradients shrink with the split."""
    if shape.tensor_parallel > 1:
        shrinking = 2 * shape.hidden_mb / shape.tensor_parallel + shape.hidden_mb
    else:
        shrinking = shape.hidden_mb * (1 + FEED_FORWARD_WIDTH / shape.hidden)
    return _split_end(end, splits, -(1 - 1 / splits) * shrinking)


def split_last(end: End, splits: int, shape: SequenceShape) -> End:
    """The tail: of three logits-sized buffers a split remains, and those of earlier splits are kept once.

    tail - 3 (1 - 1/k) L + (k - 1) L / k
    """
    return _split_end(end, splits, -2 * (1 - 1 / splits) * shape.logits_mb)


def _split_end(end: End, splits: int, more_mb: float) -> End:
    return replace(
        end, forward_time=end.forward_time / splits, backward_time=end.backward_time / splits,
        weight_time=end.weight_time / splits, static_memory=end.static_memory + more_mb,
    )
