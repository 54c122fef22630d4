"""What turns images into embeddings in front of the first layer: a vision tower and what projects its output."""

from __future__ import annotations

from meshwright.value import Value

HALF = 0.5


class Tower(Value, frozen=True, kw_only=True):
    """A tower on the first stage, frozen unless it is ``trained``; every rank there holds and runs all of it."""

    name: str
    layers: int
    hidden: int
    parameters: int
    """All of its weights, with what projects its output to the width of the model."""
    trained: bool = False
    heads: int | None = None
    """None: heads of 64."""
    width: int | None = None
    """Of its feed-forward blocks; None: four times ``hidden``."""
    gated: bool = False
    merged: int = 4
    """Patches that become one token of the sequence."""
    image_patches: int = 4096
    """Patches of an image, which look at each other; of towers that take any size those of 896 x 896 pixels in patches of 14."""
    window_patches: int | None = None
    """Patches of a window, where layers look at no more; None: every layer looks at the image."""
    whole_layers: int = 0
    """Layers that look at the image all the same."""
    image_ratio: float = HALF
    """Share of every sequence that is tokens of images."""
    architecture: str = ""
    """The class of transformers that has tower and model, where there is one."""

    @property
    def num_heads(self) -> int:
        """Heads of its attention."""
        return self.heads or max(1, self.hidden // 64)

    @property
    def block_width(self) -> int:
        """Width of its feed-forward blocks."""
        return self.width or 4 * self.hidden
