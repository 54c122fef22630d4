"""Prints the parity matrix of the reference step: ``python -m benchmarks.parity [--ranks 2 4] [--only WORD]``.

Each row runs three optimizer steps of a layout, and compares losses and every parameter's first gradient with one plain process.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from meshwright.domain.label import parse_layout
from meshwright.domain.model import Attention, LatentAttention, LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.engine.launch import Task, launch
from meshwright.engine.request import Options, Request

if TYPE_CHECKING:
    from meshwright.engine.parity import Parity

SEQUENCE_TOKENS, SEQUENCES, LAYERS = 32, 8, 4
GROUPED = Attention(num_heads=8, num_key_value_heads=4, head_dim=16, query_key_norm="head")
DENSE = Model(
    name="dense", hidden=64, vocabulary=256, kinds=(LayerKind(attention=GROUPED, feed_forward=Mlp(width=128)),), pattern=(0,) * LAYERS
)  # fmt: skip
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
        kinds=(LayerKind(attention=SINKS, feed_forward=replace(MIXTURE, expert_bias=True, router_bias=True, shared_width=0, shared_gate=False)),),
    ),
    "alibi": replace(DENSE, name="alibi", position="alibi", norm="layer", embedding_norm=True),
    "parallel": replace(
        DENSE, name="parallel", norm="layer-no-bias",
        kinds=(LayerKind(attention=replace(GROUPED, query_key_norm="none"), feed_forward=Mlp(width=128), norms=1, parallel_block=True),),
    ),
}  # fmt: skip
QUICK = {
    2: (
        "dense tp2 sp", "dense dp2 zero1 mb2", "dense dp2 zero3", "dense cp2 zero2", "dense pp2 layers=[1,3] schedule=1f1b",
        "moe dp2 ep2 zero2", "mla tp2 sp ep2", "learned tp2 sp", "tied pp2", "dense pp2 vp2 schedule=dualpipev", "dense dp2 zero2 bf16",
        "dense dp2 zero2 packed recompute=selective:op",
    ),
    4: ("dense dp2 pp2 zero1", "moe tp2 sp pp2 ep2 recompute=full", "dense tp2 sp dp2 zero3", "moe dp4 ep2 zero3 shard2"),
}  # fmt: skip
DATA = ("dp{n} zero0 mb2", "dp{n} zero1 mb2", "dp{n} zero2 mb2", "dp{n} zero3 mb2", "dp{n} zero2 bf16", "dp{n} zero0 bf16", "dp{n} zero1 bf16")
TENSOR = ("tp{n}", "tp{n} sp", "tp{n} sp mb4 bf16")
CONTEXT = ("cp{n} zero0", "cp{n} zero1", "cp{n} zero2", "cp{n} zero3", "cp{n} zero3 packed")
SCHEDULES = (
    "pp{n} schedule=gpipe", "pp{n} schedule=1f1b", "pp{n} schedule=zb1p", "pp2 vp2 layers=[0,1;2,1]", "pp{n} schedule=1f1b bf16",
    "pp{n} packed", "pp2 vp2 schedule=dualpipev",
)  # fmt: skip
RECOMPUTE = ("full", "full:1", "selective:core_attn", "selective:mlp", "selective:core_attn,mlp", "selective:op")
SLOW = {
    2: (
        *(f"dense {words.format(n=2)}" for words in (*DATA, *TENSOR, *CONTEXT, *SCHEDULES[:3], *SCHEDULES[4:])),
        "dense pp2 vp2 layers=[1,1;1,1]", "dense pp2 vp2 layers=[1,1;1,1] packed", "dense pp2 schedule=1f1b layers=[3,1]",
        *(f"dense dp2 zero3 recompute={how}" for how in RECOMPUTE), *(f"dense tp2 sp recompute={how}" for how in RECOMPUTE),
        "dense pp2 recompute=full:[2,0]", "dense pp2 vp2 recompute=full:[1,0;0,1]", "dense pp2 schedule=zb1p recompute=full",
        "dense pp2 vp2 schedule=dualpipev recompute=full", "dense pp2 schedule=1f1b recompute=selective:op",
        "moe dp2 zero0", "moe dp2 ep2 zero0", "moe dp2 ep2 zero1", "moe dp2 zero1", "moe dp2 ep2 zero3", "moe tp2 sp", "moe tp2 sp ep2",
        "moe cp2 ep2 zero2", "moe pp2", "moe pp2 schedule=zb1p", "moe pp2 vp2 schedule=dualpipev", "moe dp2 ep2 zero2 recompute=full",
        "moe dp2 ep2 zero2 recompute=selective:moe", "moe dp2 ep2 zero2 recompute=selective:shared_experts", "moe dp2 ep2 zero2 bf16",
        *(f"{model} {words}" for model in ("mla", "learned", "tied", "sinks", "alibi", "parallel")
          for words in ("tp2 sp", "dp2 zero3 mb2", "cp2 zero2", "pp2", "pp2 packed")),
        "tied pp2 vp2 schedule=dualpipev", "tied dp2 zero1", "tied tp2", "learned tp2", "alibi tp2", "parallel tp2", "mla dp2 ep2 zero2",
        "mla pp2 schedule=zb1p", "tied pp2 schedule=zb1p",
    ),
    4: (
        *(f"dense {words.format(n=4)}" for words in (*DATA, *TENSOR, *CONTEXT, *SCHEDULES[:2])), "dense pp4 schedule=zb1p",
        "dense dp4 zero2 shard2", "dense dp4 zero3 shard2 mb2", "dense dp4 zero1 shard2", "dense dp4 zero3 shard2 bf16",
        *(f"dense tp2 sp dp2 zero{stage}" for stage in range(4)), "dense tp2 dp2 zero2", "dense tp2 sp cp2 zero2", "dense tp2 sp cp2 zero1",
        *(f"dense dp2 cp2 zero{stage}" for stage in range(4)), "dense dp2 cp2 zero3 shard2",
        *(f"dense pp2 dp2 zero{stage}" for stage in range(4)), *(f"dense pp2 tp2 sp schedule={name}" for name in ("gpipe", "1f1b", "zb1p")),
        "dense pp2 cp2 zero2", "dense pp2 vp2 dp2 zero2", "dense pp2 vp2 tp2 sp", "dense pp2 vp2 dp2 zero2 schedule=dualpipev",
        "dense pp2 dp2 zero1 schedule=zb1p", "dense pp2 vp2 tp2 sp schedule=dualpipev", "dense pp2 dp2 zero2 bf16 recompute=full",
        "dense pp2 tp2 sp recompute=full:[2,0] bf16", "dense tp2 sp dp2 zero3 bf16 recompute=full", "dense pp2 tp2 sp packed",
        "moe dp4 ep4 zero2", "moe dp4 ep2 zero0", "moe dp4 ep2 zero1", "moe dp4 ep2 zero2", "moe dp4 ep2 zero3", "moe dp4 ep2 zero3 shard2",
        "moe tp2 sp dp2 ep2 zero1", "moe tp2 sp dp2 ep4 zero2", "moe tp2 sp dp2 ep2 zero3", "moe tp2 sp dp2 zero2", "moe tp4 sp ep2",
        "moe dp2 cp2 ep2 zero2", "moe pp2 dp2 ep2 zero1", "moe pp2 tp2 sp ep2", "moe pp2 tp2 sp", "moe pp2 dp2 ep2 zero2 schedule=zb1p",
        "moe pp2 vp2 dp2 ep2 zero2 schedule=dualpipev", "moe dp4 ep2 zero3 bf16", "moe tp2 sp dp2 ep4 zero2 bf16 recompute=full",
        "mla tp2 sp dp2 ep2 zero2", "mla pp2 tp2 sp ep2", "mla tp2 sp cp2 ep2 zero2", "learned tp2 sp dp2 zero3", "learned tp2 sp pp2",
        "learned pp2 dp2 zero2", "tied pp2 dp2 zero3", "tied pp2 tp2 sp", "tied pp4", "tied pp2 dp2 zero1", "tied pp2 dp2 zero1 bf16",
        "sinks tp2 sp cp2 zero2", "sinks tp2 sp dp2 ep4 zero1", "alibi tp2 sp cp2 zero2", "parallel tp2 sp dp2 zero3",
    ),
}  # fmt: skip


def case(text: str, ranks: int) -> tuple[str, Request]:
    """``MODEL LAYOUT [bf16] [packed]`` -> its name and request."""
    name, *words = text.split()
    layout_words = " ".join(word for word in words if word not in ("bf16", "packed"))
    layout = parse_layout(layout_words, num_devices=ranks, global_batch_sequences=SEQUENCES)
    if layout.context_parallel > 1:
        layout = replace(layout, context_kind="ulysses")
    options = Options(packed="packed" in words)
    return text, Request(model=MODELS[name], layout=layout, sequence_tokens=SEQUENCE_TOKENS, bf16="bf16" in words, options=options)


def run(texts: tuple[str, ...], ranks: int) -> list[Parity]:
    """All cases in one start of the ranks."""
    cases = [case(text, ranks) for text in dict.fromkeys(texts)]
    results: list[Parity] = launch(Task(target="meshwright.engine.parity:compare_all", payload=cases), ranks, limit_s=900)[0]
    return results


def table(results: list[Parity], ranks: int) -> Table:
    """One row per case."""
    shown = Table("layout", "loss", "gradient", "parameters", "", title=f"{ranks} ranks against one process", title_justify="left")
    for row in results:
        worst = "" if row.equal else f"differs, most in {row.parameter}"
        shown.add_row(row.name, f"{row.loss:.1e}", f"{row.gradient:.1e}", str(row.parameters), worst or "equal")
    return shown


def main() -> int:
    """Print the matrix; 1 where a layout differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], choices=sorted(SLOW))
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bad = 0
    for ranks in options.ranks:
        texts = tuple(text for text in (*QUICK[ranks], *(() if options.quick else SLOW[ranks])) if options.only in text)
        results = run(texts, ranks) if texts else []
        Console(width=132).print(table(results, ranks))
        bad += sum(not row.equal for row in results)
    print(f"{bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
