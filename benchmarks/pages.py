"""Answers as pages, looked at in a browser: the samples that tests open, and the pictures and the example of the documentation.

python -m benchmarks.pages [--write] [NAME...]

``--write``: screenshots to docs/pictures and one page to docs/examples; without it the pages of all samples are written to a
folder that is named. Screenshots need Chromium and playwright (``scripts/browser``; ``MESHWRIGHT_CHROMIUM`` names the program where
it is not on the path).
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.cli import main as run_meshwright
from meshwright.evidence.rows.table import shipped_path

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PICTURES, EXAMPLE = ROOT / "docs" / "pictures", ROOT / "docs" / "examples" / "plan.html"
_TRIALS = (
    "llama3-8b --layers 4 --device cpu --devices 2 --global-batch 8 --sequence 64 --template run.sh --layouts layouts.txt "
    "--steps 9 --yes"
)
SAMPLES = {
    "plan": "plan llama3-70b --device h100-sxm --nodes 8 --global-batch 1024 --sequence 8192",
    "nothing": "plan llama3.1-405b --device h100-sxm --nodes 1 --global-batch 128 --sequence 8192",
    "estimate": "estimate llama3-70b --device h100-sxm --nodes 4 --global-batch 128 --sequence 8192 "
                '--layout "tp8 pp4 mb1 sp zero1"',
    "explain": 'explain llama3-8b --device h100-sxm --nodes 1 --global-batch 128 --sequence 8192 --layout "tp2 mb1 sp zero1"',
    "check": "check examples/pretrain_70b.sh --from megatron --model llama3-70b --device h100-sxm --nodes 128",
    "fix": "fix examples/out_of_memory.sh --from megatron --model llama3-8b --device h100-sxm --oom examples/out_of_memory.log",
    "balance": "balance llama3-70b --device h100-sxm --nodes 8 --global-batch 64 --sequence 8192 "
               '--layout "tp4 pp8 mb1 sp recompute=full"',
    "diagnose": "diagnose examples/slow.log --device a100-80g-sxm",
    "pack": "pack --distribution lognormal:median=1500,sigma=0.8,max=8192,n=2048 --model qwen2.5-7b --device h100-sxm --nodes 1 "
            '--task sft --layout "mb1 zero3 recompute=selective:layernorm"',
    "sweep": f"sweep {_TRIALS} --store sweep.db",
    "tune": "tune --replay runs.csv",
    "trials": f"tune {_TRIALS} --store tune.db",
    "validate": "validate runs.csv",
    "atlas": "atlas --sizes 1b,3b,8b --device h100-sxm --nodes 1..8 --global-batch 256 --sequence 4096 --framework nanotron "
             "--pin recompute=none --pin cp=1 --csv shipped --difference",
}
"""Name of a page -> the command that asks for it, run in the root of the repository."""
AT_THEIR_FILES = {"sweep", "tune", "trials", "validate"}
"""Those that are run in a folder with files made for them."""
SHOWN = ("plan", "estimate", "check", "fix", "balance", "diagnose", "tune", "atlas")
"""Pages whose screenshots the documentation has."""
LAYOUTS = ("dp2 mb1", "dp2 mb2", "dp2 mb4", "pp2 mb1", "tp2 mb1", "tp2 mb4")
RUNS = "playbook"
"""Rows of the corpus whose identifiers begin so are the recorded runs."""
MOST_ROWS = 160
DESK, PHONE, HIGH = 1280, 390, 1400
LARGEST_BYTES = 300_000


def prepare(folder: Path) -> None:
    """The files that samples read: a program in the place of a framework, layouts, recorded runs."""
    stand_in = ROOT / "benchmarks" / "stand_in.py"
    (folder / "run.sh").write_text(
        "#!/bin/bash\n# {num_microbatches}\ncase {tensor_parallel}{pipeline_parallel}{microbatch_sequences} in "
        "2*) kind=oom; ms=30000;; 121) kind=ok; ms=171000;; 111) kind=ok; ms=121000;; 112) kind=ok; ms=79000;; "
        "*) kind=ok; ms=61000;; esac\n"
        f'exec {shlex.quote(sys.executable)} {shlex.quote(str(stand_in))} "$kind" "$ms"\n', encoding="utf-8",
    )
    (folder / "layouts.txt").write_text("\n".join(LAYOUTS), encoding="utf-8")
    head, *rows = shipped_path().read_text(encoding="utf-8").splitlines()
    own = [row for row in rows if row.startswith(RUNS)][:MOST_ROWS]
    (folder / "runs.csv").write_text("\n".join([head, *own]) + "\n", encoding="utf-8")


@contextlib.contextmanager
def folder_of_samples() -> Iterator[Path]:
    """A folder with these files, gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        yield Path(name)


def write_page(name: str, folder: Path, page: Path) -> str:
    """The page of a sample as ``--html`` writes it; what the command prints beside it."""
    words = shlex.split(SAMPLES[name])
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.chdir(folder if name in AT_THEIR_FILES else ROOT):
        status = run_meshwright([*words, "--out" if name == "atlas" else "--html", str(page)])
    assert status in {0, 1}, f"meshwright {shlex.join(words)} ended with {status}"
    return stream.getvalue()


def browser_path() -> str | None:
    """The program of Chromium; None where there is none."""
    named = os.environ.get("MESHWRIGHT_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        opened = play.chromium.launch(executable_path=browser_path(), args=arguments)
        try:
            yield opened
        finally:
            opened.close()


def photograph(opened: Any, page: Path, name: str) -> None:
    """The beginning of a page on a desk and on a phone; that of a plan also by night."""
    views = [(DESK, "light", ""), (PHONE, "light", "-phone")] + [(DESK, "dark", "-dark")] * (name == SHOWN[0])
    for width, scheme, suffix in views:
        view = opened.new_page(viewport={"width": width, "height": HIGH}, color_scheme=scheme)
        view.goto(page.as_uri())
        target = PICTURES / f"{name}{suffix}.png"
        view.screenshot(path=str(target))
        view.close()
        assert target.stat().st_size < LARGEST_BYTES, f"{target.name} has {target.stat().st_size} bytes"


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("--")] or list(SHOWN)
    write = "--write" in words
    with folder_of_samples() as folder:
        out = Path(tempfile.mkdtemp(prefix="pages-")) if not write else folder
        for name in names:
            write_page(name, folder, out / f"{name}.html")
        if not write:
            print(out)
            return 0
        PICTURES.mkdir(exist_ok=True)
        EXAMPLE.parent.mkdir(exist_ok=True)
        if "plan" in names:
            shutil.copy(out / "plan.html", EXAMPLE)
        with browser() as opened:
            for name in names:
                photograph(opened, out / f"{name}.html", name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
