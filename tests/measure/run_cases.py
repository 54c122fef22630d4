"""Cases and layouts of the closed loop's tests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for
from meshwright.engine.request import Options
from meshwright.measure.here import on_one_host
from meshwright.measure.reference import case_of
from meshwright.measure.rehearse.choice import pool
from meshwright.measure.rehearse.rounds import Job
from meshwright.measure.rehearse.small import decoder, layers_for

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.layout import Layout

OPTIONS = Options(steps=1, warmup_steps=0, saved=False)


def cluster(ranks: int) -> Cluster:
    return on_one_host(cluster_for("cpu", num_devices=1), ranks)


@cache
def case(ranks: int, *, hidden: int = 64, sequences: int = 8, tokens: int = 32) -> Case:
    model = decoder(hidden, layers_for(ranks), vocabulary=256)
    return case_of(model, cluster(ranks), global_batch=sequences, sequence_tokens=tokens)


@cache
def layouts(ranks: int) -> tuple[Layout, ...]:
    return tuple(pool(case(ranks), OPTIONS))


def job(place: int, ranks: int = 2) -> Job:
    return Job(case=case(ranks), layout=layouts(ranks)[place], options=OPTIONS, predicted_s=0.1)
