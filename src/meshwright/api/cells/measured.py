"""The best measured run of each cell: rows of a table or of stores, gathered by what they answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.cells.cell import Cell, degrees
from meshwright.evidence.rows.attempts import attempt_key
from meshwright.evidence.rows.published import published, speed
from meshwright.evidence.rows.reading import MIXED, Refused, read_row
from meshwright.evidence.rows.run import Run
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.model import LayerKind, Model
    from meshwright.evidence.rows.published_run import Published
    from meshwright.evidence.rows.row import Row

APART = ("framework", "task", "device", "precision", "sequence_tokens", "global_batch_sequences", "layers", "hidden")
"""What may tell two rows of the atlas apart beside the model: fields of a published run."""


class Measured(Value, frozen=True, kw_only=True):
    """Runs that answer one question, and the cell that they come to."""

    cell: Cell
    best: Published
    """Of the fastest run; where nothing ran, of any that was tried."""
    runs: tuple[Run, ...]
    """Those of them that can be predicted, failed ones too."""
    fastest: Run | None
    """None where nothing ran, or where it cannot be predicted."""

    @property
    def case(self) -> Case | None:
        """What was trained, as the runs say it; None where none of them says enough."""
        return self.runs[0].case if self.runs else None


class Wanted(Value, frozen=True, kw_only=True):
    """Which rows count; what is None or empty leaves none out."""

    models: tuple[str, ...] = ()
    """Names as the rows have them."""
    family: str | None = None
    device: str | None = None
    devices: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    global_batch: int | None = None
    sequence: int | None = None
    precision: str | None = None
    task: str | None = None

    def takes(self, row: Row) -> bool:
        """Whether a row may answer, as far as its own columns say."""
        if self.models and row.model.casefold() not in {each.casefold() for each in self.models}:
            return False
        if self.family and (row.said.family or row.framework.lower()) != self.family:
            return False
        if self.devices and row.num_devices not in self.devices:
            return False
        same = ((self.global_batch, row.global_batch_sequences), (self.sequence, row.sequence_tokens), (self.task, row.task))
        return all(wanted is None or wanted == own for wanted, own in same)

    def keeps(self, best: Published) -> bool:
        """Whether runs answer, by names of the catalogue."""
        if any(wanted and wanted != own for wanted, own in ((self.device, best.device), (self.precision, best.precision))):
            return False
        return not self.nodes or best.devices in {each * (best.devices_per_node or 1) for each in self.nodes}


def measured(rows: Iterable[Row], wanted: Wanted) -> list[Measured]:
    """What rows come to, cell by cell, in the order of model and number of devices; rows with a flag say nothing.

    Holds:   of several runs the fastest stands in the cell, as ``catalog runs`` has it; two rows of the atlas that would be called
             alike are told apart by what differs between them.
    """
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if not row.flag and row.num_devices and wanted.takes(row):
            groups[(*attempt_key(row), row.shape)].append(row)
    found = [each for own in groups.values() if (each := _measured(own, wanted)) is not None]
    return _with_linearity(_named(_fastest(found)))


def _measured(rows: Sequence[Row], wanted: Wanted) -> Measured | None:
    read = {row.id: read_row(row) for row in rows}
    ran = [row for row in rows if row.status == "ok" and speed(row)[0] and not _too_fast(read[row.id])]
    first = min(ran, key=lambda row: (-(speed(row)[0] or 0.0), row.id)) if ran else min(rows, key=lambda row: row.id)
    best = published(first)
    if not wanted.keeps(best):
        return None
    every = {id: each for id, each in read.items() if isinstance(each, Run)}
    fastest = every.get(first.id) if ran else None
    per_node = fastest.case.cluster.devices_per_node if fastest else best.devices_per_node or 8
    said: dict[str, Any] = {
        "series": best.model, "model": best.model, "device": best.device, "devices": best.devices or 0,
        "devices_per_node": per_node, "source": "measured",
        "batch": {"global_batch_sequences": best.global_batch_sequences, "sequence_tokens": best.sequence_tokens},
        "run": {
            "id": best.id if ran else None, "source": best.source, "framework": best.framework, "ran": len(ran),
            "failed": len(rows) - len(ran),
        },
    }
    if not ran:
        number = len(rows)
        cell = Cell(**said, why=f"{number} run{'s' if number > 1 else ''} tried, none worked")
        return Measured(cell=cell, best=best, runs=tuple(every.values()), fastest=None)
    reserved = best.memory_bytes if best.memory_kind == "reserved peak" else None
    cell = Cell(
        **said, label=best.label, layout=degrees(fastest.layout) if fastest else _by_words(best), step_s=best.step_s,
        tokens_per_s_per_device=best.tokens_per_s_per_device, mfu_ratio=best.mfu_ratio, memory_peak_bytes=best.memory_bytes,
        memory_reserved_bytes=reserved,
    )
    return Measured(cell=cell, best=best, runs=tuple(every.values()), fastest=fastest)


def _too_fast(read: Run | Refused) -> bool:
    """Whether a figure is beyond every device: its unit is another."""
    return isinstance(read, Refused) and read.kind == MIXED


def _by_words(best: Published) -> dict[str, Any]:
    """What a row says of its layout that makes no case."""
    return {"data_parallel": best.data_parallel, "num_microbatches": best.num_microbatches, "recompute": best.recompute}


def _fastest(found: Sequence[Measured]) -> list[Measured]:
    """Of cells that differ in nothing that a reader is told, the one with the fastest run."""
    best: dict[tuple[object, ...], Measured] = {}
    for each in found:
        key = (each.cell.model, each.cell.devices, *(getattr(each.best, name) for name in APART))
        if key not in best or (each.cell.tokens_per_s_per_device or 0) > (best[key].cell.tokens_per_s_per_device or 0):
            best[key] = each
    return list(best.values())


def _named(found: Sequence[Measured]) -> list[Measured]:
    """Rows of the atlas called by their models, and by what else differs between the rows of a model."""
    by_model: dict[str, list[Measured]] = defaultdict(list)
    for each in found:
        by_model[each.cell.model].append(each)
    named = []
    for model in sorted(by_model):
        own = by_model[model]
        differs = [name for name in APART if len({getattr(each.best, name) for each in own}) > 1]
        for each in own:
            said = [_word(name, getattr(each.best, name)) for name in differs]
            named.append(replace(each, cell=replace(each.cell, series=", ".join([model, *said]))))
    return sorted(named, key=lambda each: (each.best.parameters or 0, each.cell.place))


def _word(name: str, value: object) -> str:
    if name == "sequence_tokens":
        return f"{value} tokens"
    words = {"global_batch_sequences": f"batch {value}", "layers": f"{value} layers", "hidden": f"hidden {value}"}
    return words.get(name, str(value))


def _with_linearity(found: Sequence[Measured]) -> list[Measured]:
    """Cells that say their linearity against the fewest whole nodes of their row that ran."""
    rows: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for each in found:
        rows[each.cell.series, each.cell.device].append(each)
    told = []
    for each in found:
        cell = each.cell
        whole = [
            other.cell for other in rows[cell.series, cell.device]
            if other.cell.tokens_per_s_per_device and other.cell.devices % other.cell.devices_per_node == 0
        ]
        first = min(whole, key=lambda other: other.devices, default=None)
        if first is None or cell.tokens_per_s_per_device is None or cell.devices < first.devices:
            told.append(each)
            continue
        ratio = cell.tokens_per_s_per_device / (first.tokens_per_s_per_device or 1.0)
        told.append(replace(each, cell=replace(cell, linearity_ratio=ratio, linearity_baseline_devices=first.devices)))
    return told


def answers(found: Measured, case: Case) -> bool:
    """Whether runs were made of a case: the same model but for its name, devices, batch and numbers."""
    own = found.case
    if own is None:
        return False
    return (
        shape(own.model) == shape(case.model) and own.cluster.device.name == case.cluster.device.name
        and own.cluster.num_devices == case.cluster.num_devices
        and own.batch.global_batch_sequences == case.batch.global_batch_sequences
        and own.batch.sequence_tokens == case.batch.sequence_tokens
        and own.training.precision.name == case.training.precision.name and own.training.task == case.training.task
    )


def _heads(kind: LayerKind) -> tuple[object, ...]:
    """Attention of a layer by its sizes; nothing where it has none."""
    attention = kind.attention
    return () if attention is None else (
        attention.num_heads, attention.num_key_value_heads, attention.head_dim, attention.latent, attention.selected_tokens,
    )


def shape(model: Model) -> tuple[object, ...]:
    """What makes two models one, whatever they are called: widths, counts, and what the layers are, in their order."""
    kinds = [(_heads(kind), kind.mixer, kind.feed_forward) for kind in model.kinds]
    runs: list[list[object]] = []
    for index in model.pattern:
        if runs and runs[-1][0] == kinds[index]:
            runs[-1][1] = int(str(runs[-1][1])) + 1
        else:
            runs.append([kinds[index], 1])
    return model.hidden, model.vocabulary, model.tied_embeddings, tuple(map(tuple, runs))


def under(found: Measured, series: str) -> Measured:
    """The same as a cell of another row of the atlas."""
    return replace(found, cell=replace(found.cell, series=series))


def by_place(found: Iterable[Measured]) -> Mapping[tuple[str, str, int], Measured]:
    """Measured cells by where they stand."""
    return {each.cell.place: each for each in found}
