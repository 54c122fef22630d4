"""Scripts of plans run for what they are: every program is a stub that notes its words, and one of them nobody may call."""

from __future__ import annotations

import subprocess
from pathlib import Path

REAL = ("bash", "cat", "dirname", "env", "grep", "seq", "tee")
STUBS = ("accelerate", "deepspeed", "llamafactory-cli", "make", "megatron", "msrun", "python", "python3", "ray", "scontrol", "srun",
         "torchrun", "uv")
CANARY = "pwned"
"""The command in hostile names: it notes that it ran."""
_STUB = """#!/bin/bash
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\n\\0'; } >> "$NOTES"
echo "Used peak memory usage (without fragments)"
"""
_RUN = """
for folder in "$1"/*/; do
  for script in "$folder"*/*.sh; do
    [[ -e "$script" ]] || continue
    export NOTES="$script.notes"
    { bash -n "$script" && cd "${script%/*}" && PATH="$2" bash "$script"; } > "$NOTES.out" 2>&1 < /dev/null
    echo "$?" > "$NOTES.status"
  done
done
"""
_GIVEN = {
    "NODE_RANK": "0", "MASTER_ADDR": "localhost", "DATA": "data", "TOKENIZER": "tokenizer", "LR": "1e-5", "LC_ALL": "C.UTF-8",
    "NEMO_RL": ".",
}


def stubs(folder: Path) -> Path:
    """A folder of stubs, and of the few programs that scripts really need."""
    folder.mkdir()
    for name in REAL:
        found = next(place for place in (Path("/usr/bin"), Path("/bin"), Path("/usr/local/bin")) if (place / name).exists())
        (folder / name).symlink_to(found / name)
    for name in (*STUBS, CANARY):
        (folder / name).write_text(_STUB)
        (folder / name).chmod(0o755)
    return folder


def run_all(folder: Path, programs: Path) -> None:
    """Every script two folders below, checked by ``bash -n`` and run, all from one bash: notes, output and status lie beside."""
    subprocess.run(["bash", "-c", _RUN, "run", str(folder), str(programs)], env={"PATH": "/usr/bin:/bin", **_GIVEN}, check=True,
                   timeout=60)


def calls(notes: Path) -> list[list[str]]:
    """The words of each program that a script called."""
    if not notes.exists():
        return []
    words = notes.read_bytes().decode("utf-8", "surrogateescape").split("\0")
    found: list[list[str]] = [[]]
    for word in words[:-1]:
        if word == "\n":
            found.append([])
        else:
            found[-1].append(word)
    return found[:-1]
