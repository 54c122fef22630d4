"""What ``check`` says of the routing of tokens: nobody is advised to force it, and who forces it is warned."""

import pytest

import meshwright as mw

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")

CASE = {"model": "qwen3-30b-a3b", "device": "h100-sxm", "nodes": 1, "global_batch": 64, "sequence": 4096, "task": "lora"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bridge")
    layout = "ep8 dp8 mb1 zero0 recompute=full"
    plan = folder / "plan.yaml"
    words = "\n".join(f"  {name}: {value}" for name, value in CASE.items())
    plan.write_text(f"meshwright_plan: 1\nrequest:\n{words}\n  framework: bridge\nlayout: {layout}\n")
    mw.export(mw.ExportRequest(plan=str(plan), to="bridge", out=str(folder / "out")))
    return folder / "out" / "launch.sh", folder / "out" / "train.py"


@pytest.mark.parametrize("forced", [False, True])
def test_forced_routing_is_warned_of_and_never_advised(files, tmp_path, forced):
    script = tmp_path / "launch.sh"
    text = files[0].read_text()
    key = "model.moe_router_force_load_balancing="
    assert f"{key}False" in text
    script.write_text(text.replace(f"{key}False", f"{key}{forced}"))
    found = mw.check(mw.CheckRequest(files=[str(script), str(files[1])], from_="bridge", **CASE)).checked.findings
    named = {each.message.id: each.severity for each in found}
    assert "check.launch-routing" not in named
    assert named.get("check.forced-routing") == ("warning" if forced else None)
