"""What full-text searches share: the words of a query, and the marks around hits in a snippet."""

from __future__ import annotations

import re

MAX_WORDS, MAX_WORD = 12, 64
SHORTEST = 3  # bytes of a word that may go on: a Chinese character, or three Latin letters
RUN = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Runs of what is neither blank, quote, control character nor punctuation alone."""
    runs = re.split(r'[\s"\x00-\x1f\x7f]+', text[:1000])
    return [run[:MAX_WORD] for run in runs if re.search(r"\w", run.replace("_", ""))][:MAX_WORDS]


def may_go_on(word: str) -> bool:
    """Whether a longer word that begins so is found, too: for one or two letters that would be most of all texts."""
    *_, last = RUN.findall(word) or [""]
    return len(last.encode(errors="replace")) >= SHORTEST


HIT_STARTS, HIT_ENDS = "\ue000", "\ue001"
