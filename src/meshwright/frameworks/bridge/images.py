"""Made-up images in front of a language model: what Megatron-Bridge's data set for towers is told."""

from __future__ import annotations

from math import isqrt, prod
from typing import TYPE_CHECKING

from meshwright.documents.quoting import python
from meshwright.frameworks.hub import hub_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.model import Model
    from meshwright.domain.tower import Tower
    from meshwright.frameworks.compose import Values

PATCH_PIXELS = 14
"""Edge of a patch of the towers that Bridge has here (Qwen2.5-VL, Gemma 3)."""


def images_of(tower: Tower, sequence_tokens: int) -> tuple[int, int]:
    """How many images a sample has, and pixels of their edge, so that they make the planned share of its tokens.

        n = max(1, round(r s m / p))        edge = 14 e, e the largest multiple of sqrt(m) with e e <= min(p, r s m / n)

    Symbols: r share of images; s tokens of the sequence; m patches of a token; p patches of an image.
    Holds:   towers that take any size; Gemma 3 makes 256 tokens of every image, so that its share is right from one image on.
    Source:  Megatron-Bridge 067f987 data/builders/mock_vlm_sft.py: num_images images of image_size a sample.

    >>> from meshwright.domain.tower import Tower
    >>> images_of(Tower(name="t", layers=1, hidden=64, parameters=1), 4096)
    (2, 896)
    """
    patches = tower.image_ratio * sequence_tokens * tower.merged
    count = max(1, round(patches / tower.image_patches))
    step = isqrt(tower.merged)
    edge = isqrt(int(min(tower.image_patches, patches / count))) // step * step
    return count, PATCH_PIXELS * max(step, edge)


def seen(values: Values, model: Model | None, sequence_tokens: int | None, *, adapted: bool) -> dict[str, str]:
    """Settings of the launch that say how a tower is trained, on how many tokens of images; none where the model has no tower, or
    the files say nothing of one. Adapters leave it frozen.

    Holds:   made-up images of ``images_of`` have the planned number of tokens, but for what their edges are rounded by.
    """
    frozen = values.source.value("model.freeze_vision_model")
    if model is None or model.vision is None or not isinstance(frozen, bool):
        return {}
    found = {"vision": "frozen" if frozen or adapted else "trained"}
    count, size = values.source.value("dataset.num_images"), values.source.value("dataset.image_size")
    edges = [edge // PATCH_PIXELS for edge in size if type(edge) is int] if isinstance(size, (list, tuple)) else []
    if type(count) is int and count > 0 and len(edges) == 2 and min(edges) > 0:  # else no image of whole patches is described
        patches = count * prod(edges)
        found["image_tokens"] = str(min(patches // model.vision.merged, sequence_tokens or patches))
    return found


def mocked(case: Case) -> Iterator[str]:
    """The lines of a program that set ``config.dataset``: conversations about made-up images, padded to the planned length."""
    tower = case.model.tower
    assert tower is not None
    count, pixels = images_of(tower, case.batch.sequence_tokens)
    yield "    config.dataset = MockVLMSFTDatasetConfig("
    yield f"        seq_length={case.batch.sequence_tokens}, hf_processor_path={python(hub_name(case.model))},"
    yield f"        num_images={count}, image_size=({pixels}, {pixels}), pad_to_max_length=True, num_workers=1,"
    yield "    )"
