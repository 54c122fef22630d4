"""Whether a change of speed changed an answer: ``python -m benchmarks.answers TREE [--only WORD]``.

The JSON of commands of this tree and of another one (``git worktree add``), to the last byte but for seconds of clocks. Status 1
where any differs: each with the first lines that do.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from difflib import unified_diff
from pathlib import Path

from benchmarks.commit import ROOT
from benchmarks.speed import COMMANDS, DEEPSEEK, JSON, TEMPLATE, environment

CLOCKS = re.compile(r'^\s*"(search_s|solve_s|evaluations_per_s)": .*$', re.MULTILINE)
LLAMA = "llama3-70b --device h100-sxm --nodes 8 --global-batch 256 --sequence 8192"
MIXTURE = "qwen3-235b-a22b --device h100-sxm --nodes 16 --global-batch 1024 --sequence 4096"
MORE = (
    "plan llama3-8b --device h100-sxm --nodes 1 --global-batch 64 --sequence 8192",
    "plan llama3-70b --device a100-80g-sxm --nodes 1 --global-batch 64 --sequence 4096",
    f"plan {LLAMA} --framework torchtitan", f"plan {LLAMA} --framework nanotron", f"plan {LLAMA} --framework bridge",
    f"plan {LLAMA} --precision fp8-cs --task sft", f"plan {LLAMA} --pin tp=8 --pin pp=2",
    f"plan {MIXTURE} --framework megatron", "plan gpt-oss-120b --device h100-sxm --nodes 8 --global-batch 512 --sequence 8192",
    "plan mixtral-8x7b --device a100-80g-sxm --nodes 4 --global-batch 256 --sequence 4096",
    f"explain {LLAMA}", f"explain {MIXTURE}", f"explain {LLAMA} --layout 'tp8 pp4 dp2 mb1 sp'",
    f"estimate {LLAMA} --layout 'tp8 pp4 dp2 mb1 sp'", f"estimate {MIXTURE} --layout 'tp4 pp4 ep8 dp8 mb1 sp zero1'",
    f"fix {LLAMA} --layout 'tp2 pp1 dp32 mb4'", f"balance {LLAMA} --layout 'tp8 pp4 vp2 dp2 mb1 sp'",
    "check pretrain_70b.sh --from megatron --model llama3-70b --device h100-sxm --nodes 16",
    "import pretrain_70b.sh --from megatron", "lint pretrain_70b.sh", "diagnose slow.log",
    "fix pretrain_70b.sh --from megatron --model llama3-70b --device h100-sxm --nodes 16",
)
"""What is asked beside the commands that are timed: every verb that estimates or reads files, and models of each sort."""
ASKED = tuple(dict.fromkeys([*(each.words for each in COMMANDS if each.target), f"plan {DEEPSEEK} --framework bridge", *MORE]))


def answer(tree: Path, words: str, folder: Path) -> str:
    """What a command of a tree says: its status, its JSON without clocks, and its complaints."""
    command = [sys.executable, "-m", "meshwright", *shlex.split(words), "--json"]
    done = subprocess.run(command, env=environment(tree), cwd=folder, capture_output=True, text=True, check=False)
    return f"status {done.returncode}\n{CLOCKS.sub('', done.stdout)}{done.stderr}"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=__doc__)
    parser.add_argument("tree", type=Path, help="the other tree")
    parser.add_argument("--only", default="", help="commands that hold this text")
    options = parser.parse_args(arguments)
    changed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in (("train.sh", TEMPLATE), ("ds_config.json", JSON)):
            (folder / path).write_text(text)
        for path in ("pretrain_70b.sh", "slow.log"):
            (folder / path).write_bytes((ROOT / "examples" / path).read_bytes())
        for words in (each for each in ASKED if options.only in each):
            then, now = (answer(tree, words, folder) for tree in (options.tree.resolve(), ROOT))
            changed += then != now
            print("same" if then == now else "CHANGED", f"({len(now):,} characters, {now[:8]})", words, flush=True)
            if then != now:
                print("\n".join(list(unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm="", n=1))[:20]))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
