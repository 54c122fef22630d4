"""What NeMo-RL's two back ends share: recipes that inherit recipes, words of Hydra above, the batch in samples, the engine."""

RELEASES = ("0.6",)
"""0.6: NVIDIA-NeMo/RL 7ea279ab (0.6.0, 2026-08-22)."""
