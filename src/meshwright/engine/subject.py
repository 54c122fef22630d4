"""What a dry run runs, whoever built it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from torch import Tensor, nn

    Step = Callable[[], None]


class Subject:
    """What is run: modules, an optimizer of PyTorch's, forward with backward, and the update."""

    def __init__(
        self, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer, inputs: Iterable[Tensor], ahead: Step, update: Step
    ) -> None:
        self.modules, self.optimizer, self.inputs, self.ahead, self.update = modules, optimizer, inputs, ahead, update

    def parameters(self) -> list[nn.Parameter]:
        """All parameters, each once."""
        return list({id(each): each for module in self.modules for each in module.parameters()}.values())
