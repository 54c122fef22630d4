"""From a case and layouts to estimates: the one cost model, assembled."""

from meshwright.plan.estimate import estimate, model_flops
from meshwright.plan.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "estimate", "evaluate", "model_flops"]
