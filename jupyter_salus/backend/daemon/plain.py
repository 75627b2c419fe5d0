"""What peers say of themselves, as it may be written into a log, a terminal or a page: one line, without controls."""

from __future__ import annotations

import re

#: Control characters, ends of lines and paragraphs, halves of pairs, and marks that turn the direction of what follows.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str | None) -> str:
    """The text with a sign in place of each character that does something other than be seen: an admin may read it in a
    terminal, or in a log. Nothing of nothing."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text or "")
