"""What a training step reads: synthetic batches, and samples of unequal length in packed micro-batches."""

from meshwright.engine.data.collate import collate_packed, context_part, packed_loss
from meshwright.engine.data.sampler import PackedBatchSampler
from meshwright.engine.data.stream import PackedStream
from meshwright.engine.data.synthetic import DOCUMENTS, Sample, global_sample, own_sample

__all__ = [
    "DOCUMENTS", "PackedBatchSampler", "PackedStream", "Sample", "collate_packed", "context_part", "global_sample", "own_sample",
    "packed_loss",
]
