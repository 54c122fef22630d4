"""What verl's two back ends share: Hydra's words, the batch in prompts and responses, the rollout engine beside the trainer."""

RELEASES = ("0.8", "0.10")
"""0.8: volcengine/verl b178a3cd (0.8.0.dev, 2026-01-29); 0.10: verl-project/verl 1dda039b9 (0.10.0.dev, 2026-08-22)."""
