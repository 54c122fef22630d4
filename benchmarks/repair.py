"""How long ``repair`` takes on random layouts that do not fit: ``python -m benchmarks.repair [NUMBER] [SEED]``.

Models of about 70 billion parameters on 64 to 512 devices, frameworks and knobs drawn at random; only layouts that are legal and do
not fit. Prints one line a layout, then how they are spread. One core: run it as ``taskset -c 0 python -m benchmarks.repair``.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.label import parse_layout
from meshwright.errors import InputError
from meshwright.estimate.single import estimate
from meshwright.frameworks import framework
from meshwright.search.legality import layout_refusals
from meshwright.search.repair import WithinMemory, repair

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks import Framework

MODELS = ("llama3-70b", "llama2-70b", "qwen2.5-72b", "mixtral-8x22b", "mixtral-8x7b")
CLUSTERS = {
    "megatron": ("h100-sxm", "a100-40g-sxm", "a100-80g-sxm"), "bridge": ("h100-sxm", "b200"), "torchtitan": ("h100-sxm",),
    "mindspeed-llm": ("ascend-910b",), "mindformers": ("ascend-910b",), "nanotron": ("h100-sxm",),
}


def drawn(rng: random.Random) -> tuple[Case, Framework, Layout] | None:
    """A case and a layout that do not go together for memory alone; None where the draw is illegal, or fits."""
    name = rng.choice(tuple(CLUSTERS))
    devices, batch = 64 * 2 ** rng.randrange(4), 128 * 2 ** rng.randrange(4)
    cluster = replace(cluster_for(rng.choice(CLUSTERS[name])), num_devices=devices)
    runner = framework(name)
    words = [
        f"{knob}{2 ** rng.randrange(most)}" for knob, most in (("tp", 4), ("cp", 2), ("pp", 4), ("vp", 2), ("mb", 4), ("ep", 3))
    ]
    stage = rng.choice(runner.features.zero_stages)
    words += [rng.choice(("sp", "")), f"zero{stage}", f"recompute={rng.choice(runner.features.recompute)}"]
    try:
        case = make_case(
            rng.choice(MODELS),
            cluster,
            global_batch_sequences=batch,
            sequence_tokens=rng.choice((4096, 8192, 16384)),
            framework=name,
        )
        runner = runner.for_case(case)
        layout = parse_layout(
            " ".join(words), num_devices=devices, global_batch_sequences=batch, model=case.model,
            shards_over_context=runner.features.shards_over_context,
        )
    except InputError:
        return None
    if layout_refusals(case, runner.features, layout) or runner.check(case, layout) or estimate(case, layout).fits:
        return None
    return case, runner, layout


def main() -> None:
    """Time so many draws."""
    number, seed = (int(text) for text in (*sys.argv[1:], *("100", "1")[len(sys.argv) - 1 :]))
    rng = random.Random(seed)
    taken: list[float] = []
    while len(taken) < number:
        draw = drawn(rng)
        if draw is None:
            continue
        case, runner, layout = draw
        begin = time.process_time()
        answer = repair(case, runner.features, layout, WithinMemory(), check=runner.check, said=runner.overlap)
        taken.append(time.process_time() - begin)
        first = "; ".join(edit.words for edit in answer.found[0].edits) if answer.found else "nothing fits"
        label = answer.base_estimate.label if answer.base_estimate else ""
        print(
            f"{taken[-1]:6.2f} s  {answer.searched_edits} edits, {answer.candidates:6} candidates, {answer.legal:6} legal, "
            f"{answer.satisfying:5} fit, {len(answer.found):2} answers: {first}  "
            f"({runner.name} {case.model.name} {case.cluster.device.name} x {layout.world}: {label})"
        )
    taken.sort()
    shares = f"median {taken[number // 2]:.2f} s, nine in ten below {taken[number * 9 // 10]:.2f} s, longest {taken[-1]:.2f} s"
    print(f"{number} layouts: {shares} of one core")


if __name__ == "__main__":
    main()
