"""A row of measured runs, typed: what its columns say. None, or the empty word, is a cell that its source left blank."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import field

from meshwright.evidence.rows.columns import RATES, RATIOS, SCHEMA, SWITCHES, WORDS
from meshwright.evidence.rows.conventions import said
from meshwright.evidence.rows.said import Said
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.training import Task

Status = Literal["ok", "failed", ""]
Zero = Literal["", "0", "1", "2", "3", "fsdp", "hsdp"]
Cell = str | int | float | bool | None
ZERO_STAGES: Mapping[Zero, int] = {"1": 1, "2": 2, "3": 3, "fsdp": 3, "hsdp": 3}


class Shape(Value, frozen=True, kw_only=True):
    """Columns that describe the model."""

    attention: str = ""
    gated: bool | None = None
    parameters_billions: float | None = None
    num_layers: int | None = None
    hidden: int | None = None
    num_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: float | None = None
    """Rounded where a source divides."""
    ffn_width: int | None = None
    vocabulary: int | None = None
    num_experts: int | None = None
    experts_per_token: int | None = None
    expert_width: int | None = None
    num_shared_experts: int | None = None
    num_dense_layers: int | None = None


class Measured(Value, frozen=True, kw_only=True):
    """Columns that say how the run went."""

    tokens_per_s_per_device: float | None = None
    step_s: float | None = None
    samples_per_s: float | None = None
    tflops_per_device: float | None = None
    mfu_ratio: float | None = None
    flops_convention: str = ""
    memory_gib: float | None = None
    memory_kind: str = ""
    """What the source calls the memory that it states: allocated peak, reserved peak, device total, unknown or blank."""


class Row(Value, frozen=True, kw_only=True):
    """One run as its source describes it."""

    id: str = ""
    line: int = 0
    """Line of the file."""
    source: str = ""
    status: Status = ""
    flag: str = ""
    """A doubt; rows with one count in no fit and no metric."""
    task: Task = "pretrain"
    framework: str = ""
    framework_version: str = ""
    model: str = ""
    device: str = ""
    """As the source spells it."""
    num_devices: int | None = None
    devices_per_node: int | None = None
    precision: str = ""
    sequence_tokens: int | None = None
    global_batch_sequences: int | None = None
    microbatch_sequences: int | None = None
    tensor_parallel: int | None = None
    sequence_parallel: bool | None = None
    context_parallel: int | None = None
    pipeline_parallel: int | None = None
    virtual_stages: int | None = None
    expert_parallel: int | None = None
    expert_tensor_parallel: int | None = None
    data_parallel: int | None = None
    zero: Zero = ""
    recompute: str = ""
    extra_settings: str = ""
    notes: str = ""
    shape: Shape = field(default_factory=Shape)
    measured: Measured = field(default_factory=Measured)
    said: Said = field(default_factory=Said)
    """What the source means beside the columns."""

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that the column means."""
        return ZERO_STAGES.get(self.zero, 0)

    def cell(self, column: str) -> Cell:
        """The value of a column of the schema."""
        found: Cell = _CELLS[column](self)
        return found

    def word(self, column: str) -> str:
        """The cell of a column as a table spells it: blank, 0 and 1 for switches, numbers without a needless fraction."""
        value = self.cell(column)
        if value is None:
            return ""
        return f"{value:.15g}" if isinstance(value, float) else str(int(value)) if isinstance(value, bool) else str(value)


FIELDS = {
    "gpu": "device", "n_gpus": "num_devices", "gpus_per_node": "devices_per_node", "seq": "sequence_tokens",
    "gbs": "global_batch_sequences", "mbs": "microbatch_sequences", "tp": "tensor_parallel", "sp": "sequence_parallel",
    "cp": "context_parallel", "pp": "pipeline_parallel", "vpp": "virtual_stages", "ep": "expert_parallel",
    "etp": "expert_tensor_parallel", "dp": "data_parallel",
    "attention": "shape.attention", "gated_mlp": "shape.gated", "n_params_B": "shape.parameters_billions",
    "n_layers": "shape.num_layers", "hidden": "shape.hidden", "n_heads": "shape.num_heads",
    "n_kv_heads": "shape.num_key_value_heads", "head_dim": "shape.head_dim", "ffn_hidden": "shape.ffn_width",
    "vocab": "shape.vocabulary", "n_experts": "shape.num_experts", "top_k": "shape.experts_per_token",
    "moe_ffn_hidden": "shape.expert_width", "n_shared_experts": "shape.num_shared_experts",
    "n_dense_layers": "shape.num_dense_layers",
    "tokens_per_s_per_gpu": "measured.tokens_per_s_per_device", "step_time_s": "measured.step_s",
    "samples_per_s": "measured.samples_per_s", "tflops_per_gpu": "measured.tflops_per_device", "mfu": "measured.mfu_ratio",
    "flops_convention": "measured.flops_convention", "mem_gb": "measured.memory_gib", "mem_kind": "measured.memory_kind",
}
"""Column -> field; the other columns are fields of their own name."""
_CELLS = {column: attrgetter(FIELDS.get(column, column)) for column in SCHEMA}
_PARTS = {column: tuple(FIELDS.get(column, column).rpartition(".")[::2]) for column in SCHEMA}


def row_of(cells: Mapping[str, str], line: int = 0) -> Row:
    """The row of cells without a fault (``columns.cell_fault``), and what its source means; a column that is not given is blank."""
    found: dict[str, dict[str, Any]] = {"": {}, "shape": {}, "measured": {}}
    for column, cell in cells.items():
        if cell:
            part, name = _PARTS[column]
            found[part][name] = _value(column, cell)
    row = Row(**found[""], line=line, shape=Shape(**found["shape"]), measured=Measured(**found["measured"]))
    return replace(row, said=said(row.word))


def _value(column: str, cell: str) -> Cell:
    if column in WORDS:
        return cell
    number = float(cell)
    return number if column in RATES + RATIOS else bool(number) if column in SWITCHES else int(number)
