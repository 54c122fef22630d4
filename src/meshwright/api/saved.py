"""A saved plan: the request, the layout that was chosen, and what was predicted; readable, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.fields import Faults, Values
from meshwright.api.options import CASE, LAYOUT, PLAN
from meshwright.api.request import read
from meshwright.api.request_file import PLAN_FILE, PLAN_KEY
from meshwright.domain.training import Lora
from meshwright.errors import fault
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate

FORMAT = 1
HEAD = """\
# A plan of Meshwright. `meshwright export {file} --to {framework} --out DIR` writes launch files from it,
# `meshwright estimate --request {file}` predicts it again.
"""


class TextFile(Value, frozen=True, kw_only=True):
    """A file to write."""

    path: str
    text: str
    executable: bool = False


def plan_file(request: dict[str, Any], estimate: Estimate) -> TextFile:
    """``plan.yaml``: no dates and no durations, so that the same plan is the same file."""
    import yaml

    document = {
        PLAN_KEY: FORMAT,
        "request": _plain(request),
        "layout": estimate.label,
        "predicted": {
            "calibration": estimate.calibration,
            "step_s": float(estimate.step_s),
            "mfu_ratio": float(estimate.mfu_ratio),
            "tokens_per_s_per_device": float(estimate.tokens_per_s_per_device),
            "memory_reserved_bytes": round(estimate.memory_reserved_bytes),
            "memory_capacity_bytes": round(estimate.memory_capacity_bytes),
        },
    }
    body = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=120)
    return TextFile(path=PLAN_FILE, text=HEAD.format(file=PLAN_FILE, framework=str(request.get("framework") or "megatron")) + body)


def load_plan(where: str, faults: Faults) -> Values:
    """The values of a saved plan (the file, or the directory that holds it), with its layout.

    Errors:  ``InputError`` with every fault of it, and with those noted before.
    """
    values = read_plan(where, faults)
    faults.check()
    return values


def read_plan(where: str, faults: Faults) -> Values:
    """The values of a saved plan as ``load_plan`` gives them; faults are noted, and raised where nothing can be read."""
    path = plan_path(where)
    values = read((*CASE, *PLAN, LAYOUT), {"request": str(path)}, faults)
    if "layout" not in values and "layout" not in faults.failed:
        faults.add("plan.layout", "is no plan: it has no 'layout'", path=str(path))
    return values


def plan_path(where: str) -> Path:
    """The file of a saved plan that is named by itself or by its directory."""
    return Path(where) / PLAN_FILE if Path(where).is_dir() else Path(where)


def _plain(request: dict[str, Any]) -> dict[str, Any]:
    """Values as YAML writes them: pins as a mapping; adapters are those that every plan has.

    Errors:  ``InputError`` for other adapters, which a plan has no words for.
    """
    lora = request.get("lora")
    if lora is not None and lora != Lora():
        own, every = (f"rank {each.rank} on {', '.join(each.targets)}" for each in (lora, Lora()))
        raise fault("plan.adapters", "a plan has adapters of {every}, not of {own}", path="task", every=every, own=own)
    return {key: dict(value) if key == "pin" else value for key, value in request.items() if key != "lora"}
