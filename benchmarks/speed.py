"""CPU seconds beside those of an earlier commit, run alternately: ``python -m benchmarks.speed [--baseline TREE] [--write FILE]``.

Every command is a process that starts cold; of each the best of some rounds counts, user and system time of all of its threads, so
that a loaded machine changes little. The grids are searched inside a process. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commit import ROOT, commit_of
from meshwright.words import percent

COMMIT = "e4c6b15"
CHILD = Path(__file__).with_name("speed_child.py")
TEMPLATE = """python -m torch.distributed.launch \\
  --nproc_per_node 8 --nnodes 128 pretrain_gpt.py \\
  --tensor-model-parallel-size 8 \\
  --pipeline-model-parallel-size 16 \\
  --micro-batch-size 1 \\
  --global-batch-size 2048 \\
  --gradient-accumulation-steps 16 \\
  --seq-length 4096 \\
  --max-position-embeddings 4096 \\
  --use-flash-attn \\
  --bf16 \\
  --sequence-parallel \\
  --overlap-grad-reduce \\
  --deepspeed_config ds_config.json
"""
"""The launch template of the guide in seed 003, with the script that its dots leave out."""
JSON = """{"zero_optimization": {"stage": 3, "contiguous_gradients": true, "overlap_comm": true},
 "activation_checkpointing": {"partition_activations": true}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line that is timed, and the share of the earlier commit's CPU time that it may take."""

    name: str
    words: str
    target: float | None


DEEPSEEK = "deepseek-v3 --device h800 --nodes 256 --global-batch 15360 --sequence 4096"
COMMANDS = (
    Command(name="`plan`, llama3-70b on 64 nodes", target=0.7,
            words="plan llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"),
    Command(name="`plan`, DeepSeek-V3 on 256 nodes of H800", target=0.33, words=f"plan {DEEPSEEK}"),
    Command(name="`plan`, Qwen3-235B on 32 nodes", target=0.4,
            words="plan qwen3-235b-a22b --device h100-sxm --nodes 32 --global-batch 2048 --sequence 4096"),
    Command(name="`explain`, DeepSeek-V3 on 256 nodes of H800", target=0.3, words=f"explain {DEEPSEEK}"),
    Command(name="`check` of the guide's template", target=0.5,
            words="check train.sh ds_config.json --from megatron --model llama2-70b --device a100-80g-sxm --devices 1024"),
    Command(name="`plan`, llama3-70b on 98,304 devices", target=0.7,
            words="plan llama3-70b --device h100-sxm --devices 98304 --global-batch 98304 --sequence 8192"),
    Command(name="`--help`", target=None, words="--help"),
)
GRIDS = (
    ("llama3-70b on 64 nodes", 1.7), ("gpt-oss-120b on 64 nodes", None), ("qwen3-235b on 32 nodes", None),
    ("deepseek-v3 on 256 nodes", None), ("llama3-70b on 98,304 devices", None),
)
LARGE = "deepseek-v3 on 384 nodes"
PROFILED = ("llama3-70b on 64 nodes", "deepseek-v3 on 256 nodes")
PEERS = (
    ("SimuMax", "4-14"), ("Calculon", "48 as shipped, 360-430 with its logger raised, 1,270 where most are refused early"),
    ("llm-analysis", "2,200-4,300"), ("zhebrak/llm-cluster-simulator", "8,700"),
)
"""Layouts a second and core that other planners evaluate. Source: the project's run of each."""


def environment(tree: Path) -> dict[str, str]:
    """The environment of a process of a tree, whose modules are compiled once, as those of an installed program are."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPATH": str(tree / "src"), "COLUMNS": "140"}


def cpu_s(tree: Path, words: str, folder: Path) -> float:
    """CPU seconds of a command of a tree."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "meshwright", *words.split()]
    done = subprocess.run(command, env=environment(tree), cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{words}: {done.stderr.strip()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(tree: Path, mode: str, name: str) -> dict[str, Any]:
    """What the child measures in a process of a tree."""
    command = [sys.executable, str(CHILD), mode, name]
    done = subprocess.run(command, env=environment(tree), cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def met(ratio: float, target: float | None, *, more: bool = False) -> str:
    """A target beside what came of it."""
    if target is None:
        return "-"
    return f"{target:g}, {'met' if (ratio >= target if more else ratio <= target) else 'missed'}"


def commands_table(trees: tuple[Path, Path], rounds: int, folder: Path) -> list[str]:
    """Cold processes."""
    lines = [f"| command | {COMMIT}, CPU s | now, CPU s | ratio | target |", "| --- | --- | --- | --- | --- |"]
    for each in COMMANDS:
        best = [float("inf")] * 2
        for _ in range(rounds):
            best = [min(known, cpu_s(tree, each.words, folder)) for known, tree in zip(best, trees, strict=True)]
        then, now = best
        lines.append(f"| {each.name} | {then:.2f} | {now:.2f} | {now / then:.2f} | {met(now / then, each.target)} |")
        print(lines[-1], flush=True)
    return lines


def grids_table(trees: tuple[Path, Path]) -> list[str]:
    """The grids alone, all evaluated and as a search looks at them, and whether the figures are the same."""
    lines = [
        f"| grid | legal | evaluated, /s at {COMMIT} | now, /s | ratio | target | under a bar: evaluated | decided, /s | ratio "
        "| best 240 of both that are the same | largest difference |",
        "| --- " * 11 + "|",
    ]
    for name, target in GRIDS:
        then, now, barred = (measured(*asked, name) for asked in ((trees[0], "grid"), (trees[1], "grid"), (trees[1], "search")))
        speeds = [each["evaluated"] / each["cpu_s"] for each in (then, now)]
        decided = [each["legal"] / each["cpu_s"] for each in (then, barred)]
        common = [(then["best"][label], barred["best"][label]) for label in then["best"] if label in barred["best"]]
        apart = max((abs(a - b) / a for pair in common for a, b in zip(*pair, strict=True)), default=0.0)
        lines.append(
            f"| {name} | {now['legal']:,} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | {speeds[1] / speeds[0]:.2f} "
            f"| {met(speeds[1] / speeds[0], target, more=True)} | {barred['evaluated']:,} | {decided[1]:,.0f} "
            f"| {decided[1] / decided[0]:.1f} | {len(common)} | {apart:.1e} |"
        )
        print(lines[-1], flush=True)
    return lines


def warm_table(tree: Path) -> list[str]:
    """What a prepared case costs."""
    lines = ["| case | first plan, CPU s | what-if, CPU ms | plan with another pin, CPU s |", "| --- " * 4 + "|"]
    for name, _ in GRIDS[:1] + GRIDS[2:4]:
        each = measured(tree, "warm", name)
        lines.append(f"| {name} | {each['plan_s']:.2f} | {1e3 * each['what_if_s']:.1f} | {each['again_s']:.2f} |")
        print(lines[-1], flush=True)
    return lines


def said(tree: Path, words: str, folder: Path) -> dict[str, Any]:
    """The JSON of a command of a tree."""
    command = [sys.executable, "-m", "meshwright", *shlex.split(words), "--json"]
    done = subprocess.run(command, env=environment(tree), cwd=folder, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer.get("estimate") or (answer["plans"][0]["estimate"] if "plans" in answer else answer)


def answers_table(trees: tuple[Path, Path], folder: Path) -> list[str]:
    """What both commits answer, and what this one says of the earlier one's first layout."""
    lines = [
        f"| command | first at {COMMIT} | step, s then | the same now | expected now | first now | step, s | expected |",
        "| --- " * 8 + "|",
    ]
    for each in COMMANDS:
        verb, _, case = each.words.partition(" ")
        if verb not in ("plan", "explain"):
            continue
        then, now = (said(tree, each.words, folder) for tree in trees)
        same = said(trees[1], f"estimate {case} --layout '{then['label']}'", folder)
        lines.append(
            f"| {each.name} | `{then['label']}` | {then['step_s']:.3f} | {same['step_s']:.3f} | {same['expected_step_s']:.3f} "
            f"| `{now['label']}` | {now['step_s']:.3f} | {now['expected_step_s']:.3f} |"
        )
        print(lines[-1], flush=True)
    return lines


def _share(profile: dict[str, Any], stage: str) -> str:
    """Seconds of a stage of a profile, and its share."""
    share = profile["share"][stage]
    return f"{share * profile['cpu_s']:.2f} ({percent(share, 0)})"


def profiles(trees: tuple[Path, Path]) -> list[str]:
    """Shares of the stages of a plan under the profiler, before and after, and what takes most now."""
    lines: list[str] = []
    for name in PROFILED:
        both = then, now = [measured(tree, "profile", name) for tree in trees]
        lines += [f"| `plan`, {name} | {COMMIT} | now |", "| --- | --- | --- |"]
        lines += [f"| CPU seconds under the profiler | {then['cpu_s']:.1f} | {now['cpu_s']:.1f} |"]
        lines += [
            " | ".join([f"| {stage}", *(_share(each, stage) for each in both)]) + " |"
            for stage in then["share"]
        ]
        lines += ["", "Functions that take most themselves now: " + ", ".join(
            f"{function} {seconds:.2f} s in {calls:,} calls" for function, calls, seconds in now["heavy"]) + ".", ""]
    return lines


def tree_of(commit: str, folder: Path) -> Path:
    """The sources of a commit, unpacked."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--baseline", type=Path, help=f"a tree of the earlier commit [default: {COMMIT}, unpacked by git]")
    parser.add_argument("--rounds", type=int, default=5, help="of each command the best of so many counts")
    parser.add_argument("--profiles", action="store_true", help="profiles too, which take as long again")
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.sh").write_text(TEMPLATE)
        (folder / "ds_config.json").write_text(JSON)
        trees = (options.baseline or tree_of(COMMIT, folder), ROOT)
        sections = {
            "grids": grids_table(trees), "warm": warm_table(ROOT),
            "commands": commands_table(trees, options.rounds, folder), "answers": answers_table(trees, folder),
        }
        large = measured(ROOT, "search", LARGE)
        sections["memory"] = [
            f"{LARGE}: {large['legal']:,} legal layouts decided in {large['cpu_s']:.2f} CPU seconds by a process of at most "
            f"{large['peak_bytes'] / 1e6:.0f} MB."
        ]
        if options.profiles:
            sections["profiles"] = profiles(trees)
    sections["peers"] = [
        "| planner | layouts a second and core |", "| --- | --- |", *(f"| {who} | {speed} |" for who, speed in PEERS),
    ]
    sections["commit"] = [f"Commit {commit_of()} beside {COMMIT}, best of {options.rounds}."]
    for title, lines in sections.items():
        print(f"\n{title}\n" + "\n".join(lines))
    if options.write:
        write(options.write, sections)
    return 0


def write(path: Path, sections: dict[str, list[str]]) -> None:
    """Put sections between the marks of a page."""
    text = path.read_text()
    for title, lines in sections.items():
        begin, end = f"<!-- {title} -->\n", f"<!-- /{title} -->"
        if begin in text:
            head, rest = text.split(begin)
            text = head + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
