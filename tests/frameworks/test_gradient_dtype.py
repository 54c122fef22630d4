"""Gradients of any type: a framework that cannot hold them refuses them, and what it writes for those it can is read as that."""

from pathlib import Path

import pytest

import meshwright as mw
from meshwright.api.legality import never_trains
from meshwright.frameworks import framework, frameworks

CASE = {"model": "llama3-8b", "nodes": 2, "global_batch": 64, "sequence": 4096}
BESIDE = ("README.md", "plan.yaml", "probe.sh")


@pytest.mark.parametrize("gradients", ["fp32", "bf16"])
@pytest.mark.parametrize("name", frameworks())
def test_gradients_are_refused_or_read_back(name, gradients, tmp_path):
    if framework(name).writer is None:
        pytest.skip("writes no files")
    case = {**CASE, "device": "ascend-910b" if name.startswith("mind") else "h100", "gradient_dtype": gradients}
    try:
        answer = mw.plan(mw.PlanRequest(**case, framework=name, top=1, no_balance=True, save=str(tmp_path / "out")))
    except mw.MeshwrightError as error:
        assert gradients == "bf16", error
        assert "gradients" in str(error)
        return
    assert answer.ok
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name not in BESIDE and _read(path)]
    checked = mw.check(mw.CheckRequest(files=[str(path) for path in files], from_=name, **case)).checked
    assert "check.contradiction" not in {each.message.id for each in checked.findings}


def _read(path: Path) -> bool:
    return "probe" not in path.parts and path.suffix in {".sh", ".py", ".yaml", ".yml", ".json", ".toml"}


@pytest.mark.parametrize("release", ["0.2", "0.3", "main"])
def test_torchtitan_reduces_in_float32_alone(release):
    """job_config.py:290 of 0.2.2 and configs.py:93 of 0.3.0: ``mixed_precision_reduce: Literal["float32"]``."""
    from meshwright.api.cases import setup
    from meshwright.api.fields import Faults

    for gradients, refused in (("fp32", []), ("bf16", ["torchtitan.gradients"])):
        values = {"model": "llama3-8b", "cluster": "dgx-h100", "global_batch": 64, "sequence": 4096,
                  "gradient_dtype": gradients, "framework": f"torchtitan@{release}"}
        assert [each.id for each in never_trains(setup(values, Faults(), runs=False))] == refused
