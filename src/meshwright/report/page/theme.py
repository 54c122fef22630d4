"""Colours by day and by night, of pages and of the drawings on them; contrasts are held by a test.

A drawing has the colours of the day as its own, so that it is whole where it stands alone. On a page rules of the style sheet
exchange its neutral ones by night, and lift words that are coloured; areas keep theirs, which are seen on both grounds.
"""

from __future__ import annotations

from meshwright.report.pipeline_picture import NIGHT
from meshwright.report.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, RED

TEAL, BROWN, PINK, YELLOW, SKY, CORAL = "#2f8f8b", "#a9634c", "#c2588b", "#a8852b", "#4f92c8", "#cf6f5c"
LEAF, MINT = "#5f9e4e", "#4c9aa0"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, TEAL, YELLOW, PINK, BROWN, SKY, CORAL, GREY, RED)
"""Of parts side by side, in their order."""
OF_STYLE = {
    "blue": BLUE, "cyan": TEAL, "green": GREEN, "magenta": PURPLE, "yellow": YELLOW, "red": RED, "bright_black": GREY,
    "bright_blue": SKY, "bright_magenta": PINK, "bright_red": CORAL, "bright_yellow": ORANGE, "bright_green": LEAF,
    "bright_cyan": MINT,
}
"""A terminal's colours, as parts of bars have them -> those of drawings."""
WORDS_BY_NIGHT = {BLUE: "#6cabf0", ORANGE: "#f0a060", GREEN: "#6fce8f", RED: "#ff8a80", PURPLE: "#b99ee6", GREY: "#9aa4ae"}
"""Colours of words in a drawing by day -> by night."""
WORDS_BY_DAY = {ORANGE: "#a34f0c", GREEN: "#2a7044", GREY: "#656d76"}
"""Colours of areas that are too light for words."""
DAY = {
    "paper": "#ffffff", "raised": "#f6f8fa", "ink": "#1f2328", "muted": "#59636e", "line": "#d1d9e0", "accent": "#1f5fa8",
    "good": "#1a6b37", "bad": "#b3261e", "warn": "#7a5200", "warn-ground": "#fff6dc",
}
DARK = {
    "paper": "#0d1117", "raised": "#161b22", "ink": "#e6edf3", "muted": "#9da7b1", "line": "#343b44", "accent": "#79b8ff",
    "good": "#6fce8f", "bad": "#ff938a", "warn": "#e9c46a", "warn-ground": "#2b2412",
}
"""Names of the style sheet -> colours."""


def colours() -> str:
    """The rules of both: by the system's wish, by the switch; paper is always white."""
    system, switched = ":root:not([data-theme=light])", ":root[data-theme=dark]"
    by_day = "".join(f'svg text[fill="{area}"]{{fill:{words}}}' for area, words in WORDS_BY_DAY.items())
    return (
        f":root{{color-scheme:light;{_properties(DAY)}}}{by_day}"
        f"@media screen and (prefers-color-scheme:dark){{{_night(system)}}}"
        f"@media screen{{{_night(switched)}}}"
    )


def _properties(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def _night(root: str) -> str:
    drawings = "".join(
        f'{root} svg[fill="{day}"],{root} svg [fill="{day}"]{{fill:{night}}}{root} svg [stroke="{day}"]{{stroke:{night}}}'
        for day, night in NIGHT.items()
    )
    lifted = "".join(f'{root} svg text[fill="{day}"]{{fill:{night}}}' for day, night in WORDS_BY_NIGHT.items())
    return f"{root}{{color-scheme:dark;{_properties(DARK)}}}{drawings}{lifted}"
