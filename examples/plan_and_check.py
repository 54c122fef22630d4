"""Plan a training, write its files, let them be checked, and ask for less memory: python examples/plan_and_check.py [DIR]."""

import sys
from pathlib import Path

import meshwright as mw

MACHINE = {"device": "h100-sxm", "nodes": 2}


def main(place: Path) -> mw.PlanAnswer:
    """Everything goes through the door: a request in, an answer out. ``to_json()`` is what ``--json`` prints."""
    wanted = mw.PlanRequest(
        model="llama3-8b", **MACHINE, global_batch=256, sequence=8192, framework="megatron", top=3, pin={"zero": 1}, save=place
    )
    answer = mw.plan(wanted)
    for plan in answer.result.plans:
        step_s, (low, high) = plan.estimate.step_s, plan.estimate.interval.step_s
        print(f"{plan.rank}  {step_s:.2f} s ({low:.2f} to {high:.2f})  MFU {plan.estimate.mfu_ratio:.1%}  {plan.label}")
    print("written:", *sorted(Path(path).name for path in answer.saved))

    found = mw.check(mw.CheckRequest(files=[place / "train.sh"], from_="megatron", model="llama3-8b", **MACHINE)).to_json()
    print("ok" if found["ok"] else "not ok", *sorted({finding["id"] for finding in found["findings"]}))

    fixed = mw.fix(mw.FixRequest(files=[place / "train.sh"], from_="megatron", model="llama3-8b", **MACHINE, memory="32GiB"))
    change = fixed.to_json()["changes"][0]
    edits = ", ".join(f"{edit['field']} {edit['from']} -> {edit['to']}" for edit in change["edits"])
    print(f"in 32 GiB: {edits}, {change['step_change_ratio']:+.1%}")
    return answer


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "my-run"))
