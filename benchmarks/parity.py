"""Prints the parity matrix of the reference step: ``python -m benchmarks.parity [--ranks 2 4] [--only WORD] [--write]``.

Each row runs three optimizer steps of a layout, and compares losses and every parameter's first gradient with one plain process.
Ten minutes on two cores; ``--write``: docs/parity.md.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.console import Console
from rich.table import Table

from meshwright.domain.attention import Attention, LatentAttention
from meshwright.domain.label import parse_layout
from meshwright.domain.mixers import GatedDelta, Mamba2
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.engine.launch import Task, launch
from meshwright.engine.request import Options, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.engine.parity import Parity

SEQUENCE_TOKENS, SEQUENCES, LAYERS = 32, 8, 4
CASES_PER_START = 16
GROUPED = Attention(num_heads=8, num_key_value_heads=4, head_dim=16, query_key_norm="head")
PLAIN = LayerKind(attention=GROUPED, feed_forward=Mlp(width=128))
DENSE = Model(name="dense", hidden=64, vocabulary=256, kinds=(PLAIN,), pattern=(0,) * LAYERS)
MIXTURE = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_width=32, shared_width=64, shared_gate=True)
LATENT = LatentAttention(query_rank=32, key_value_rank=16, nope_dim=16, rope_dim=8, value_dim=16)
OLD = Attention(num_heads=8, num_key_value_heads=8, head_dim=8, query_bias=True, key_value_bias=True, output_bias=True)
SINKS = Attention(num_heads=8, num_key_value_heads=4, head_dim=16, sinks=True, window_tokens=16, query_bias=True)
MODELS = {
    "dense": DENSE,
    "moe": replace(DENSE, name="moe", kinds=(LayerKind(attention=GROUPED, feed_forward=MIXTURE),)),
    "mla": replace(
        DENSE, name="mla", pattern=(0, 1, 1, 1),
        kinds=tuple(
            LayerKind(attention=Attention(num_heads=8, num_key_value_heads=8, head_dim=24, latent=LATENT), feed_forward=block)
            for block in (Mlp(width=128), replace(MIXTURE, shared_gate=False, correction_bias=True, routed_scale=2.5))
        ),
    ),
    "learned": replace(
        DENSE, name="learned", norm="layer", position="learned", position_table=SEQUENCE_TOKENS, tied_embeddings=True,
        kinds=(LayerKind(attention=OLD, feed_forward=Mlp(width=128, gated=False, bias=True)),),
    ),
    "tied": replace(DENSE, name="tied", tied_embeddings=True),
    "sinks": replace(
        DENSE, name="sinks",
        kinds=(LayerKind(
            attention=SINKS, feed_forward=replace(MIXTURE, expert_bias=True, router_bias=True, shared_width=0, shared_gate=False)
        ),),
    ),
    "alibi": replace(DENSE, name="alibi", position="alibi", norm="layer", embedding_norm=True),
    "parallel": replace(
        DENSE, name="parallel", norm="layer-no-bias",
        kinds=(replace(PLAIN, attention=replace(GROUPED, query_key_norm="none"), norms=1, parallel_block=True),),
    ),
    "delta": replace(
        DENSE, name="delta", pattern=(0, 0, 0, 1),
        kinds=(
            LayerKind(mixer=GatedDelta(key_heads=4, value_heads=8, key_dim=8, value_dim=16, chunk_tokens=8), feed_forward=MIXTURE),
            LayerKind(attention=replace(GROUPED, gate="full"), feed_forward=MIXTURE),
        ),
    ),
    "mamba": replace(
        DENSE, name="mamba", pattern=(0, 1, 0, 2), tied_embeddings=True,
        kinds=(
            LayerKind(mixer=Mamba2(num_heads=8, head_dim=8, state_dim=16, num_groups=4, chunk_tokens=8), norms=1),
            LayerKind(feed_forward=Mlp(width=128, gated=False), norms=1),
            LayerKind(attention=replace(GROUPED, query_key_norm="none"), norms=1),
        ),
    ),
}
PAGE = Path(__file__).parents[1] / "docs" / "parity.md"
CASES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
QUICK: dict[int, list[str]] = CASES["quick"]
SLOW: dict[int, list[str]] = CASES["slow"]
PREFACE = """# Parity of the reference step

Written by `python -m benchmarks.parity --write`. Each row runs three optimizer steps of a layout on CPU and gloo, with small
models of every sort that the reference step knows (`benchmarks/parity.py`), {sequences} sequences of {tokens} tokens, and
compares with one plain process that uses none of the layout's code: the largest difference of a step's loss, and over all
parameters the largest norm of a difference of the first gradient, over the norm of that gradient. Equal means within 5e-6 and
1e-4; with BF16 within 2e-3 and 5e-2, and 0.4 for gradients of mixtures, where rounding sends tokens to other experts. {equal}
of {count} layouts are equal.
"""


def case(text: str, ranks: int) -> tuple[str, Request]:
    """``MODEL LAYOUT [bf16] [packed] [compiled]`` -> its name and request."""
    name, *words = text.split()
    layout_words = " ".join(word for word in words if word not in ("bf16", "packed", "compiled"))
    layout = parse_layout(layout_words, num_devices=ranks, global_batch_sequences=SEQUENCES)
    if layout.context_parallel > 1:
        layout = replace(layout, context_kind="ulysses")
    options = Options(packed="packed" in words, compiled="compiled" in words)
    return text, Request(model=MODELS[name], layout=layout, sequence_tokens=SEQUENCE_TOKENS, bf16="bf16" in words, options=options)


def run(texts: Sequence[str], ranks: int) -> list[Parity]:
    """All cases, some in each start of the ranks: every case makes a dozen groups, whose threads stay until ranks end."""
    cases = [case(text, ranks) for text in dict.fromkeys(texts)]
    results: list[Parity] = []
    for first in range(0, len(cases), CASES_PER_START):
        task = Task(target="meshwright.engine.parity:compare_all", payload=cases[first : first + CASES_PER_START])
        results += launch(task, ranks, limit_s=600)[0]
    return results


def table(results: list[Parity], ranks: int) -> Table:
    """One row per case."""
    shown = Table("layout", "loss", "gradient", "parameters", "", title=f"{ranks} ranks against one process", title_justify="left")
    for row in results:
        worst = "" if row.equal else f"differs, most in {row.parameter}"
        shown.add_row(row.name, f"{row.loss:.1e}", f"{row.gradient:.1e}", str(row.parameters), worst or "equal")
    return shown


def page(results: Mapping[int, Sequence[Parity]]) -> Iterator[str]:
    """The lines of docs/parity.md."""
    count = sum(map(len, results.values()))
    bad = sum(not row.equal for rows in results.values() for row in rows)
    yield PREFACE.format(tokens=SEQUENCE_TOKENS, sequences=SEQUENCES, count=count, equal=count - bad).rstrip()
    for ranks, rows in results.items():
        yield f"\n## {ranks} ranks\n\n| model and layout | loss | gradient | most in | parameters | |\n|---|---:|---:|---|---:|---|"
        for row in rows:
            words = f"{row.name} | {row.loss:.1e} | {row.gradient:.1e} | {row.parameter} | {row.parameters}"
            yield f"| {words} | {'equal' if row.equal else 'differs'} |"


def main() -> int:
    """Print the matrix; 1 where a layout differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], choices=sorted(SLOW))
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help="write docs/parity.md; needs the whole matrix")
    options = parser.parse_args()
    if options.write and (options.only or options.quick or sorted(options.ranks) != sorted(SLOW)):
        parser.error("--write needs the whole matrix")
    bad, everything = 0, {}
    for ranks in options.ranks:
        texts = [text for text in (*QUICK[ranks], *(() if options.quick else SLOW[ranks])) if options.only in text]
        results = run(texts, ranks) if texts else []
        everything[ranks] = results
        Console(width=132).print(table(results, ranks))
        bad += sum(not row.equal for row in results)
    if options.write:
        PAGE.write_text("\n".join(page(everything)) + "\n", encoding="utf-8")
    print(f"{bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
