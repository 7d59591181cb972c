"""Text that is printed later: it must not break tables or reach for the terminal."""

from __future__ import annotations

import re

from synth.errors import ProblemError

PATTERN = r"^(?![\s\S]*[\x00-\x1f\x7f-\x9f])"
"""What such a text matches, in Python's regular expressions and in those of JSON Schema."""
LINE = "one line of text without control characters"


def require_line(text: str, what: str) -> None:
    """Raises ProblemError where a text has line breaks or control characters."""
    if re.search(PATTERN, text) is None:
        raise ProblemError(f"{what} must be {LINE}, got {text!r}")
