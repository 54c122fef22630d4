"""What a rank was doing when it stopped, by the frames of the traceback above its last words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from meshwright.domain.observed.out_of_memory import Phase

MAX_FRAMES_ABOVE = 200
"""Lines above the message that are looked at."""
_FRAME = re.compile(r"File \"([^\"]{1,400})\"(?:, line \d+)?, in (\S{1,120})")
_PHASES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    ("loss", re.compile(
        r"cross_?entropy|log_?softmax|log_?probs?|logits|loss_func|[/.]loss(?:es)?[/.]|language_model_loss|CausalLMLoss|lm_head"
        r"|output_layer", re.IGNORECASE)),
    ("gather", re.compile(
        r"unshard|all_?gather_(?:params|copy_in|into)|allgather_params|fetch_sub_module|foreach_all_gather|param_sync"
        r"|partition_parameters", re.IGNORECASE)),
    ("optimizer", re.compile(
        r"/optim/|[/_]optimizer|optimizer/|_init_group|\b(?:fused_?)?adamw?\b|step_with_ready_grads|/stage_1_and_2",
        re.IGNORECASE)),
    ("experts", re.compile(r"/moe/|token_dispatcher|experts?[./]|grouped_?(?:gemm|mlp)|permut", re.IGNORECASE)),
    ("attention", re.compile(r"softmax|baddbmm|dot_product_attention|attention_mask|eager_attention", re.IGNORECASE)),
    ("backward", re.compile(r"(?<!forward_)backward", re.IGNORECASE)),
)
_SETUP = re.compile(
    r"setup_model_and_optimizer|load_checkpoint|from_pretrained|\bbuild_model\b|init_model_parallel|materialize|init_weights"
    r"|initialize_megatron", re.IGNORECASE,
)
_WORDS = re.compile(r"\blogits\b|lm_head|output_layer|log_probs|cross_entropy", re.IGNORECASE)
"""What the code of the innermost frame is about, where names of frames say nothing."""


def phase_of(lines: Sequence[str], end: int, who: Callable[[str], object]) -> tuple[Phase, str]:
    """What the traceback above a line says: the innermost frame that says anything, and that frame.

    ``who`` tells whose line it is: ranks write between each other's lines.
    """
    frames = list(_frames(lines, end, who))
    setup = next((text for text, _ in frames if _SETUP.search(text)), None)
    if setup:
        return "setup", setup
    if frames and (found := _WORDS.search(frames[0][1])):
        return "loss", found.string.strip()[:120]
    for text, _ in frames:
        for phase, pattern in _PHASES:
            if pattern.search(text):
                return phase, text
    return "", ""


def _frames(lines: Sequence[str], end: int, who: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Frames of one rank, the innermost first: ``file in function``, and the code below it."""
    own = who(lines[end]) if end < len(lines) else None
    below = ""
    for index in range(min(end, len(lines)) - 1, max(-1, end - MAX_FRAMES_ABOVE), -1):
        line = lines[index]
        if own is not None and who(line) != own:
            continue
        if "Traceback (most recent call last)" in line:
            return
        found = _FRAME.search(line)
        if found:
            yield f"{found[1]} in {found[2]}", below
            below = ""
        elif re.search(r"[A-Za-z]", line):
            below = line
