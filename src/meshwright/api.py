"""The two calls that most programs need: a case from names, and the best plans of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright import catalog
from meshwright.domain.case import Case
from meshwright.domain.model import Model
from meshwright.domain.training import Batch, Lora, Task, Training
from meshwright.frameworks import framework as framework_named
from meshwright.search import SearchOptions, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.cluster import Cluster
    from meshwright.search import PlanResult


def make_case(
    model: str | Model, cluster: str | Cluster, *, global_batch_sequences: int, sequence_tokens: int, task: Task = "pretrain",
    precision: str = "bf16", optimizer: str = "adamw", gradient_dtype: str | None = None, framework: str = "megatron",
    implementation: str | None = None, lora: Lora | None = None, calibration: str = "shipped",
) -> Case:  # fmt: skip
    """A case from catalogue names or values.

    Errors:  ``InputError`` for unknown names and impossible sizes.
    """
    value = model if isinstance(model, Model) else catalog.load_model(model)
    place = catalog.load_cluster(cluster) if isinstance(cluster, str) else cluster
    kernels = catalog.implementation(implementation or framework_named(framework).implementation)
    recipe = catalog.precision(precision, gradient_dtype or kernels.gradient_dtype)
    return Case(
        model=value,
        cluster=place,
        batch=Batch(global_batch_sequences=global_batch_sequences, sequence_tokens=sequence_tokens),
        training=Training(
            task=task,
            precision=recipe,
            optimizer=catalog.optimizer(optimizer),
            lora=(lora or Lora()) if task == "lora" else None,
        ),
        implementation=kernels,
        calibration=catalog.calibration(calibration, place, framework=kernels.family, precision=recipe.name),
    )


def find_plans(
    case: Case,
    *,
    framework: str = "megatron",
    options: SearchOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PlanResult:
    """The best layouts of a case that a framework can run.

    Errors:  ``InputError`` where no layout is legal or pins contradict; that nothing fits is a verdict of the result.
    """
    runner = framework_named(framework)
    return plan(
        case, runner.features, options or SearchOptions(), progress, acceptable=lambda layout: not runner.check(case, layout)
    )
