"""SAPP's own files (MindSpore toolkits, ``pipeline_balance``): layer files, dry-run files and hand-made strategies."""

from meshwright.readers.sapp.init_file import InitFile, read_init_file
from meshwright.readers.sapp.layer_file import LayerFile, read_layer_file
from meshwright.readers.sapp.manual import ManualStrategy, read_manual_file
from meshwright.readers.sapp.problem import problem
from meshwright.readers.sapp.sequence import SequenceShape, read_sequence_shape
from meshwright.readers.sapp.treatments import TREATMENTS, backward_times, cumulative, separated

__all__ = [
    "TREATMENTS",
    "InitFile",
    "LayerFile",
    "ManualStrategy",
    "SequenceShape",
    "backward_times",
    "cumulative",
    "problem",
    "read_init_file",
    "read_layer_file",
    "read_manual_file",
    "read_sequence_shape",
    "separated",
]
