"""Hosts, keys and paths blanked, so that a diagnosis can be shown to others."""

from __future__ import annotations

import re
from typing import Any

_PATTERNS = (
    (re.compile(r"(?i)\b(\w*(?:token|secret|passw\w*|api[_-]?key|access[_-]?key)\w*)(\s*[=:]\s*)\S+"), r"\1\2***"),
    (re.compile(r"\b(?:hf|sk|ghp|gho|glpat|xox[bp]|wandb_v1)[_-][A-Za-z0-9_-]{8,}"), "***"),
    (re.compile(r"\b[0-9a-f]{40}\b|\b[A-Za-z0-9+/]{43}="), "***"),
    (re.compile(r"(?:[a-z]+://)[^\s\"']+"), "URL"),
    (re.compile(r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.@+=,-]+){2,}/?"), "PATH"),
    (re.compile(r"(?i)\b[A-Z]:\\[\w\\ .-]+"), "PATH"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"), "ADDRESS"),
    (re.compile(r"(?i)\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b"), "ADDRESS"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+\b"), "MAIL"),
    (re.compile(r"\b[a-zA-Z][\w-]*(?:\.[\w-]+)+\.(?:com|net|org|io|edu|gov|cn|de|fr|local|internal|cluster|lan)\b"), "HOST"),
    (
        re.compile(
            r"\b(?:ip-\d+-\d+-\d+-\d+|(?:node|host|gpu|dgx|hgx|worker|compute|nid|cn|gn)[-_]?[a-z]*\d+(?:[-_]\d+)*)(?![\w-])"
        ),
        "HOST",
    ),
    (re.compile(r"(?<![\w.-])[A-Za-z][\w.-]*(?=:\d+:\d+ (?:\[\d+\] )?[NR]CCL )"), "HOST"),
)
"""What is blanked and by what, in this order: secrets first, whatever they look like."""


def redacted(text: str) -> str:
    """A text with hosts, addresses, keys and paths blanked; the last part of a path is kept where it is a file's own name.

    >>> redacted("saved to /lustre/me/run1/ckpt on gpu-a12: HF_TOKEN=hf_abcdefghij")
    'saved to PATH on HOST: HF_TOKEN=***'
    """
    for pattern, blank in _PATTERNS:
        text = pattern.sub(blank, text)
    return text


def redacted_document(value: Any) -> Any:
    """A JSON document with every text in it redacted, keys left."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_document(each) for key, each in value.items()}
    return [redacted_document(each) for each in value] if isinstance(value, list) else value
