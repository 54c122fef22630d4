"""What steps take at least, of all layouts of a mesh and of all of a pair of mesh and micro-batch: what is too late is left out."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from meshwright.estimate.combine import straggler_ratio
from meshwright.estimate.degrees import Degrees
from meshwright.search.grid_tables import keyed, work_of
from meshwright.search.legal_grid import Pairs, take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Overlap
    from meshwright.estimate.costs import Settings
    from meshwright.search.grid_tables import Keyed, Work
    from meshwright.search.legal_grid import Legal
    from meshwright.search.space import Space

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

ROUNDING = 1.0 - 1e-9
"""A lower bound is a sum in another order than what it bounds."""


def has_shares(case: Case, overlap: Overlap) -> bool:
    """Whether no micro-batch takes less than its share of a larger one of which it is a part.

    A cluster's own profile follows no such law. Nor do woven passes of a mixture: what hides exchanges of experts hides messages
    of tensor and context groups too, so that a slow small product may hide twice what it takes itself.

    Source:  ``tests/search/test_sequence_at_least.py``; ``perf.expert_exchange.expert_s``, ``perf.exchange``.
    """
    return case.cluster.measured is None and not (overlap.expert and case.model.is_moe)


def sequence_at_least_s(space: Space, known: Keyed, settings: Settings) -> Floats:
    """Lower bound of what all layers and both ends take for one sequence, whatever the micro-batch: its share of a micro-batch of
    which every other one is a part.

    Shapes:  ``[treatment, mesh]``.
    Units:   s.
    Holds:   no operator, message or launch takes longer for k micro-batches at once than k times as long as for one, where the case
             ``has_shares``.
    Source:  ``tests/search/test_sequence_at_least.py``.
    """
    meshes, largest = len(known.key), math.lcm(*space.microbatches)
    every, none = np.arange(meshes), np.zeros(meshes, dtype=np.int64)
    pairs = Pairs(mesh=every, place=none, num_microbatches=none, pipeline=none)
    work = work_of(structs.replace(space, microbatches=(largest,)), known, settings, pairs)
    return np.asarray(work.whole_s[:, work.key] / largest)


class Bounds:
    """Lower bounds of the steps of a grid."""

    def __init__(self, space: Space, legal: Legal, settings: Settings) -> None:
        """Bounds under the treatments of the settings, whatever the schedule."""
        self.space, self.legal, self.settings = space, legal, settings
        first = take(legal.mesh, np.zeros(1, dtype=np.int64))
        self.delay = (1.0 + float(straggler_ratio(space.case, Degrees.of(first))[0])) * ROUNDING
        """What stragglers add to every step, rounded down."""

    @cached_property
    def known(self) -> Keyed:
        """The meshes by what layers know of them."""
        return keyed(self.space, self.legal)

    def work(self, pairs: Pairs) -> Work:
        """What micro-batches of pairs cost."""
        return work_of(self.space, self.known, self.settings, pairs)

    @cached_property
    def of_meshes_s(self) -> Floats:
        """Of all layouts of a mesh: the mean stage of a pipeline is not the busiest, and no micro-batch does less than its share of
        the largest.

        Shapes:  ``[treatment, mesh]``; infinite where a mesh has no layout and every pair is asked.
        Units:   s.
        """
        if not has_shares(self.space.case, self.settings.overlap):
            return self._of_every_pair_s()
        mesh = self.legal.mesh
        share = self.space.case.batch.global_batch_sequences * self.delay / (mesh["dp"] * mesh["pp"])
        return np.asarray(sequence_at_least_s(self.space, self.known, self.settings) * share)

    def _of_every_pair_s(self) -> Floats:
        """The same from all micro-batches, where none says anything of another."""
        pairs, meshes = self.legal.pairs, np.arange(len(self.legal.mesh["tp"]))
        work = self.work(pairs)
        found = np.full((len(work.whole_s), len(meshes)), np.inf)
        used, first = np.unique(pairs.mesh, return_index=True)
        found[:, used] = np.minimum.reduceat(self.of_pairs_s(work, pairs, np.arange(len(found))), first, axis=1)
        return found

    def of_pairs_s(self, work: Work, pairs: Pairs, treatments: Ints) -> Floats:
        """Of all layouts of pairs under treatments by their codes: the mean stage of a pipeline is not the busiest.

        Shapes:  ``[treatment, pair]``.
        Units:   s.
        """
        share = pairs.num_microbatches * self.delay / self.legal.mesh["pp"][pairs.mesh]
        return np.asarray(work.whole_s[treatments[:, None], work.key] * share)
