"""From a case and layouts to estimates: the one cost model, assembled."""

from meshwright.estimate.evaluate import Evaluation, evaluate
from meshwright.estimate.single import estimate, model_flops

__all__ = ["Evaluation", "estimate", "evaluate", "model_flops"]
