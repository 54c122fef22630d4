"""What a wheel must be able to do where nothing else of this repository is; for scripts/wheel-smoke and tests/test_wheel.py."""

import importlib.util
import json
import sys
from pathlib import Path

import meshwright as mw
from meshwright.cli import main

CLUSTER = ("--device", "h100-sxm", "--nodes", "1")
BATCH = ("--global-batch", "128", "--sequence", "8192")


def run(place: Path) -> None:
    """Have every public name, plan with files, check them, export to two frameworks; the last line is a report in JSON."""
    assert Path(mw.__file__).with_name("py.typed").exists()
    assert importlib.util.find_spec("torch") is None, "torch is there: this is no environment of the core dependencies alone"
    missing = [name for name in mw.__all__ if getattr(mw, name, None) is None]
    assert not missing, missing
    command(*("plan", "llama3-8b", *CLUSTER, *BATCH, "--framework", "megatron", "--pin", "zero=1", "--save", str(place)))
    command("check", str(place / "train.sh"), "--from", "megatron", "--model", "llama3-8b", *CLUSTER)
    for framework in ("megatron@0.14", "bridge"):
        command("export", str(place / "plan.yaml"), "--to", framework, "--out", str(place / framework))
    command("catalog", "devices")
    files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    print(json.dumps({"version": mw.__version__, "home": mw.__file__, "names": len(mw.__all__), "files": files}))


def command(*arguments: str) -> None:
    """Run one command line, which must end well."""
    assert main(arguments) == 0, f"meshwright {' '.join(arguments)}"


if __name__ == "__main__":
    run(Path(sys.argv[1]))
