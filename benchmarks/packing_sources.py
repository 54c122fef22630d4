"""The packing functions of other programs, run from checkouts: ``DIR/chatlearn``, ``verl``, ``slime``, ``nemo-rl``, ``trl``.

What they import beside PyTorch and NumPy and do not need for packing is stood in for. A folder that is not there is left out.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

Lengths = Any
Packer = Callable[[Lengths, int, int], list[list[list[int]]]]
SHAPE = SimpleNamespace(
    hidden_size=4096, num_attention_heads=32, num_query_groups=8, vocab_size=128256, num_experts=None, ffn_hidden_size=14336,
    num_layers=32, kv_channels=128, use_dynamic_batch_size=True, balance_data=False, balance_by_flops=False,
)
"""Llama 3 8B as slime's arguments."""


def packers(folder: Path) -> dict[str, Packer]:
    """Those whose sources are there, by the names of our modes."""
    makers = {
        "chatlearn": _chatlearn, "verl": _verl, "slime": _slime, "slime-flops": _slime_by_flops, "nemo-rl": _nemo_rl, "trl": _trl,
    }
    found = {}
    for name, maker in makers.items():
        source = folder / name.removesuffix("-flops")
        if source.exists():
            found[name] = maker(source)
    return found


def _stand_in(name: str, **names: Any) -> Any:
    module = types.ModuleType(name)
    module.__dict__.update(names, __path__=[])
    return sys.modules.setdefault(name, module)


def _loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _chatlearn(folder: Path) -> Packer:
    theirs = _loaded("packing_of_chatlearn", folder / "chatlearn/algorithm/grpo_utils/packing_utils.py")

    def pack(lengths: Lengths, limit: int, ranks: int) -> list[list[list[int]]]:
        shares = np.array_split(np.arange(len(lengths)), ranks)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            most = max(len(theirs.bin_packing(lengths[share].tolist(), limit)[0]) for share in shares)
        dealt = [theirs.bin_packing_fix_bin(lengths[share].tolist(), most)[0] for share in shares]
        return [[share[each].tolist() for each in rank] for share, rank in zip(shares, dealt, strict=True)]

    return pack


def _verl(folder: Path) -> Packer:
    import torch

    _stand_in("verl")
    _stand_in("verl.protocol", DataProto=object)
    _stand_in("verl.utils", tensordict_utils=SimpleNamespace(index_select_tensor_dict=lambda batch, part: part))
    _stand_in("verl.utils.device", get_device_name=lambda: "cpu")
    theirs = _loaded("packing_of_verl", folder / "verl/utils/seqlen_balancing.py")

    def pack(lengths: Lengths, limit: int, ranks: int) -> list[list[list[int]]]:
        loads = theirs.calculate_workload(torch.tensor(lengths)).tolist()
        shares = theirs.get_seqlen_balanced_partitions(loads, ranks, equal_size=True)
        most = max(min(len(share), theirs.ceildiv(int(lengths[share].sum()), limit)) for share in shares)
        dealt = []
        for share in shares:
            ids = torch.nested.nested_tensor([torch.zeros(int(each)) for each in lengths[share]], layout=torch.jagged)
            _, parts = theirs.rearrange_micro_batches({"input_ids": ids}, limit, min_num_micro_batch=most)
            dealt.append([[share[item] for item in part] for part in parts])
        return dealt

    return pack


def _slime(folder: Path, **asked: bool) -> Packer:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    from slime.utils.dp_schedule import build_dp_schedule

    def pack(lengths: Lengths, limit: int, ranks: int) -> list[list[list[int]]]:
        arguments = SimpleNamespace(**{**vars(SHAPE), **asked, "max_tokens_per_gpu": limit})
        shape = {"dp_size": ranks, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
        shares, parts, _, _ = build_dp_schedule(
            arguments, shape, lengths.tolist(), global_batch_size=len(lengths), rollout_indices=list(range(len(lengths))),
        )
        return [[[share[item] for item in part] for part in mine] for share, mine in zip(shares, parts, strict=True)]

    return pack


def _slime_by_flops(folder: Path) -> Packer:
    return _slime(folder, balance_data=True, balance_by_flops=True)


def slime_workloads(lengths: Lengths) -> Any:
    """slime's own FLOPs of each sample."""
    from slime.utils.dp_schedule import _calculate_workloads

    return np.array(_calculate_workloads(lengths.tolist(), SHAPE))


def _nemo_rl(folder: Path) -> Packer:
    for name in ("nemo_rl", "nemo_rl.utils"):
        _stand_in(name)
    theirs = _loaded("packing_of_nemo_rl", folder / "nemo_rl/data/packing/algorithms.py")

    def pack(lengths: Lengths, limit: int, ranks: int) -> list[list[list[int]]]:
        packer = theirs.get_packer("modified_first_fit_decreasing", limit, min_bin_count=ranks, bin_count_multiple=ranks)
        bins = packer._adjust_bin_count(packer._pack_implementation(lengths.tolist()))
        return [bins[rank::ranks] for rank in range(ranks)]

    return pack


def _trl(folder: Path) -> Packer:
    import pyarrow

    with suppress(ImportError):
        import transformers  # noqa: F401  # their own, where it is there
    _stand_in("datasets", Dataset=object, DatasetDict=object, IterableDataset=object, IterableDatasetDict=object)
    theirs = _loaded("packing_of_trl", folder / "trl/data_utils.py")

    def pack(lengths: Lengths, limit: int, ranks: int) -> list[list[list[int]]]:
        packs = []
        for start in range(0, len(lengths), 1000):
            rows = pyarrow.array([np.full(int(length), start + item) for item, length in enumerate(lengths[start : start + 1000])])
            table = theirs._pack_bfd(pyarrow.table({"input_ids": rows}), limit, "truncate")
            packs += [list(dict.fromkeys(row)) for row in table["input_ids"].to_pylist()]
        return [packs[rank::ranks] for rank in range(ranks)]

    return pack
