"""One rank: ``python -m meshwright.engine.worker FOLDER`` runs the folder's task and leaves a result, or how it failed."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
import traceback
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from meshwright.engine.classify import classify
from meshwright.errors import MeshwrightError

TIMEOUT_S = 600
"""How long a rank waits for others in one exchange."""
WATCH_S = 0.5


def main(folder: Path) -> int:
    """Run the task -> exit status."""
    if "MASTER_ADDR" not in os.environ:
        end_with_parent()
    return served(folder, int(os.environ["RANK"]))


def served(folder: Path, rank: int) -> int:
    """Run the task of a folder as this rank, and leave what came of it there -> exit status."""
    try:
        _leave(folder / f"result-{rank}", pickle.dumps(_run(folder, rank)))
    except BaseException as error:
        traceback.print_exc()
        kind, text = classify(error)
        said = {"kind": kind, "text": text, "id": error.messages[0].id if isinstance(error, MeshwrightError) else ""}
        _leave(folder / f"failure-{rank}", json.dumps(said).encode())
        return 1
    return 0


def _run(folder: Path, rank: int) -> Any:
    import torch
    import torch.distributed as dist

    task = pickle.loads((folder / "task").read_bytes())
    torch.set_num_threads(task.threads)
    if task.backend == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    where = "env://" if "MASTER_ADDR" in os.environ else f"file://{folder / 'meeting'}"
    dist.init_process_group(
        "nccl" if task.backend == "cuda" else "gloo", init_method=where, rank=rank, world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    module, name = task.target.split(":")
    result = getattr(import_module(module), name)(task.payload)
    dist.barrier()
    dist.destroy_process_group()
    return result


def _leave(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.rename(path)


def end_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    status = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of communication libraries may not let go of an interpreter that ends by itself
