"""The frameworks' own parsers as judges of what is written for them; each runs in a process of its own (``oracles/``).

``judge("deepspeed-0.19.8", cases)`` gives one verdict a case; ``@needs("deepspeed-0.19.8")`` skips where the oracle is not
installed (``scripts/oracles``), but not in CI. Oracles without a version in their name are for developers: they need a
checkout of the framework, named by ``MESHWRIGHT_<NAME>_SOURCE``, and where it has dependencies of its own an interpreter with
these (``MESHWRIGHT_<NAME>_PYTHON``). A process starts when it is first asked and serves all workers until the
tests end (``conftest.py``, ``served.py``): most of its time is the import of torch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import typing
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from served import Served, end
from tests import shared

HERE = Path(__file__).parent
RUNNERS = {
    "torchtitan-0.2.2": "torchtitan_toml.py",
    "torchtitan-0.3.0": "torchtitan_flags.py",
    "deepspeed-0.19.8": "deepspeed_json.py",
    "mindformers-2.1.0": "mindformers_pynative.py",
    "accelerate-1.14.0": "accelerate_launch.py",
    "accelerate-1.15.0": "accelerate_launch.py",
    "nanotron": "nanotron_yaml.py",
    "picotron": "picotron_json.py",
    "chatlearn": "chatlearn_yaml.py",
    "megatron-deepspeed": "megatron_deepspeed_flags.py",
    "megatron-bridge": "bridge_config.py",
    "llama-factory": "llama_factory_yaml.py",
    "verl": "verl_hydra.py",
    "verl-old": "verl_hydra.py",
}
BESIDE = {"megatron-bridge": "MESHWRIGHT_MEGATRON_BRIDGE_CORE"}  # a second checkout: Megatron-LM main
Case = dict[str, typing.Any]
Verdict = dict[str, typing.Any]


def is_on_pypi(name: str) -> bool:
    """Whether the oracle comes as a wheel; the others need a checkout."""
    return name[-1].isdigit()


def packages(name: str) -> Path:
    """The directory of the oracle's packages, filled by ``scripts/oracles``."""
    return Path(os.environ.get("MESHWRIGHT_ORACLES", HERE.parents[1] / ".oracles")) / name


def source(name: str) -> str:
    """The checkout of a framework without a wheel, or the empty string."""
    return os.environ.get(f"MESHWRIGHT_{name.upper().replace('-', '_')}_SOURCE", "")


def commit_of(folder: str) -> str:
    """The commit of a checkout: of a folder without git it stands in ``COMMIT``."""
    kept = Path(folder, "COMMIT")
    if kept.exists():
        return kept.read_text(encoding="utf-8").strip()
    done = subprocess.run(["git", "-C", folder, "rev-parse", "--short=9", "HEAD"], capture_output=True, check=True, text=True)
    return done.stdout.strip()


def missing(name: str) -> str:
    """Why the oracle cannot be asked, or the empty string."""
    pins = HERE / "oracles" / "requirements" / f"{name}.txt"
    if not is_on_pypi(name) and not source(name):
        return f"MESHWRIGHT_{name.upper().replace('-', '_')}_SOURCE names no checkout"
    if name in BESIDE and not os.environ.get(BESIDE[name]):
        return f"{BESIDE[name]} names no checkout"
    stamp = packages(name) / ".complete"
    complete = f"{pins.read_text()}# Python {sys.version_info.major}.{sys.version_info.minor}\n" if pins.exists() else ""
    if complete and not (stamp.exists() and stamp.read_text() == complete):
        return f"{packages(name)} is not complete: scripts/oracles {name}"
    return ""


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test whose oracle is missing; in CI a missing wheel is an error."""
    demanded = is_on_pypi(name) and os.environ.get("CI") == "true"
    return pytest.mark.skipif(bool(missing(name)) and not demanded, reason=missing(name) or "present")


class Runner:
    """A process that answers each case, a line of JSON, with a verdict, another; one for all workers of a run."""

    def __init__(self, command: Sequence[str]) -> None:
        self.served = Served(command, shared.folder())

    def verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        """One for each case; an error with the end of the log where the process ended."""
        return [json.loads(answer) for answer in self.served.answers([json.dumps(case) for case in cases])]


RUNNING: list[Runner] = []
"""What ``end_all`` ends."""


@cache
def runner(*command: str) -> Runner:
    """The process of a command: one, however often it is asked."""
    RUNNING.append(Runner(command))
    return RUNNING[-1]


def end_all() -> None:
    """Ends every oracle that nobody else asks."""
    end([each.served for each in RUNNING])
    RUNNING.clear()
    runner.cache_clear()
    if not shared.is_worker():  # workers' folder goes with the process that started them
        shutil.rmtree(shared.folder(), ignore_errors=True)


def judge(name: str, cases: Sequence[Case]) -> list[Verdict]:
    """Verdicts of one oracle, one a case and in their order (see ``oracles/serving.py`` for both)."""
    assert not missing(name), missing(name)
    script = str(HERE / "oracles" / RUNNERS[name])
    python = os.environ.get(f"MESHWRIGHT_{name.upper().replace('-', '_')}_PYTHON", sys.executable)
    return runner(python, "-W", "ignore", script, str(packages(name)), *filter(None, [source(name)])).verdicts(cases)


def in_order(name: str, cases: list[tuple[Case, str]]) -> list[Verdict]:
    """Verdicts of (case, wording) pairs, each as expected: no wording means that the case is sound."""
    verdicts = judge(name, [case for case, _ in cases])
    for (_, wording), verdict in zip(cases, verdicts, strict=True):
        assert verdict["accepted"] == (not wording), verdict
        assert wording in verdict["why"], verdict
        assert verdict["by"] in {"parser", "repeated"}, verdict
    return verdicts
