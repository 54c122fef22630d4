"""What ``balance`` is asked: problems from a file of layers, from dry runs, or from a model with a layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from meshwright.api.request_file import CONFIG_FILE, PLAN_FILE, YAML
from meshwright.api.views.balance import FILE_UNITS
from meshwright.errors import InputError, fault
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.api.balancing.accepted import Refused
    from meshwright.api.cases import Setup
    from meshwright.api.fields import Values
    from meshwright.api.views.balance import BalanceShown, Units
    from meshwright.domain.balance import Balance, BalanceProblem, Overfull
    from meshwright.domain.layout import Layout

Source = Literal["layers", "dry runs", "model"]
_MODEL_KEYS = frozenset({"model_type", "architectures", "hidden_size", "n_embd", "num_hidden_layers"})
_DRY_RUN_KEYS = frozenset({"pipeline_config", "memory_usage", "recompute_config", "time_config", "profiling_config"})
_EXPECTED = "a layer file (.json), dry runs (.yaml), a saved plan.yaml or a model is expected"
OF_A_FILE = (
    "stages", "microbatches", "memory_mb", "less_memory", "schedule", "sequence_splits", "training_config", "hop", "manual",
)
"""Options that mean nothing where a layout says it."""


class Question(Value, frozen=True, kw_only=True):
    """One problem to solve."""

    problem: BalanceProblem
    layout: Layout | None = None
    """The layout whose stages are to be filled, where there is a model."""


class Asked(Value, frozen=True, kw_only=True):
    """Everything that a command line asks."""

    name: str
    questions: tuple[Question, ...]
    refused: tuple[tuple[int, str], ...] = ()
    """Numbers of virtual stages that cannot be asked about, and why."""
    units: Units = FILE_UNITS
    notes: tuple[str, ...] = ()
    answered: Callable[[Question, Balance], BalanceShown | Overfull | Refused]
    """An answer with what stands beside it and the frameworks' words for it; why there is none that can be proposed."""
    levers: Callable[[BalanceProblem, Overfull], tuple[str, ...]]
    """Where nothing fits: what would."""
    decomposition: Any = None
    case: Setup | None = None


def source_of(values: Values) -> Source:
    """What the positional argument is; a file is known by its keys.

    Errors: ``InputError`` for a file or a directory that is none of them.
    """
    from meshwright.readers.safe import load_json
    from meshwright.readers.safe_yaml import load_yaml

    where = str(values.get("model", ""))
    path, suffix = Path(where), Path(where).suffix.lower()
    if path.is_dir():
        if not any((path / name).is_file() for name in (PLAN_FILE, CONFIG_FILE)):
            raise fault("balance.directory", "is a directory without {plan} and {config}", path=where, plan=PLAN_FILE,
                        config=CONFIG_FILE)
        return "model"
    if where.startswith((".", "/")) and not path.exists():
        raise fault("file.missing", "no such file", path=where)
    if not where or suffix not in {".json", *YAML}:
        if suffix and path.is_file():
            raise fault("balance.suffix", _EXPECTED, path=where)
        return "model"
    if not path.exists():
        raise fault("file.missing", "no such file", path=where)
    document = load_yaml(where) if suffix in YAML else load_json(where)
    if not isinstance(document, dict) or not document:
        raise fault("balance.empty", f"holds no keys: {_EXPECTED}", path=where)
    keys = {str(key) for key in document}
    if suffix in YAML:
        return "dry runs" if keys & _DRY_RUN_KEYS else "model"
    return "model" if keys & _MODEL_KEYS else "layers"


def chunk_numbers(given: Sequence[int] | None, default: int, stages: int, layers: int, *, most: int = 4) -> tuple[int, ...]:
    """Numbers of virtual stages to try: those given, or for ``auto`` as many as leave each chunk a layer, up to ``most``."""
    if given is None:
        return (default,)
    return tuple(given) or tuple(range(1, max(1, min(most, layers // stages)) + 1))


def reasons(error: InputError) -> str:
    """Why something is refused, without the options that asked for it."""
    return "; ".join(str(replace(each, path="")) for each in error.messages)
