"""Snippets: the part of a message with most of the words, each marked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import islice

from nexus.core.fulltext import HIT_ENDS, HIT_STARTS, may_go_on

WIDTH = 160  # characters
LOOKED_AT = 100  # hits of one message that are considered
TOKEN = re.compile(r"[^\W_]+")
# Possessive: an accent is part of both, and a text of accents would backtrack at every position.
APART = r"[\W_]++"
ACCENTS = "[\u0300-\u036f]*+"
GOES_ON, ENDS = "(?:[^\\W_]|[\u0300-\u036f])*+", r"(?![^\W_])"  # after the last token of a word


class _Folds(dict[int, int]):
    """Maps each character to one without case and accents, so that positions in a text stay the same."""

    def __missing__(self, point: int) -> int:
        base = re.sub(ACCENTS, "", unicodedata.normalize("NFD", chr(point).lower()))
        whole = unicodedata.normalize("NFC", base)
        self[point] = ord(whole) if len(whole) == 1 else point
        return self[point]


_FOLDS = _Folds()


def snippet(text: str, words: Sequence[str]) -> str:
    """Return a part of `text` with many of the words, each hit between HIT_STARTS and HIT_ENDS; without a hit, the
    beginning of the text. Words match as prefixes, without regard to case and accents."""
    hits = [
        (hit.start(), hit.end(), hit.lastgroup) for hit in islice(_pattern(words).finditer(_folded(text)), LOOKED_AT)
    ]
    if not hits:
        return opening(text)
    first, last = _part(text, max(hits, key=lambda hit: (_worth(hits, hit[0]), -hit[0]))[0])
    shown, done = ["…" if first else ""], first
    for start, end, _ in hits:
        if first <= start and end <= last:
            shown += [text[done:start], HIT_STARTS, text[start:end], HIT_ENDS]
            done = end
    return "".join([*shown, text[done:last], "…" if last < len(text) else ""])


def opening(text: str) -> str:
    """Return the beginning of a text, in one line."""
    line = " ".join(text[: WIDTH * 4].split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of the words. Each is a phrase of its tokens; the last token is a prefix where it may go
    on."""
    phrases = []
    for number, word in enumerate(words):
        bare = re.sub(ACCENTS, "", _folded(word))
        tokens = ["".join(letter + ACCENTS for letter in token) for token in TOKEN.findall(bare)]
        if tokens:
            phrases.append(rf"(?P<word{number}>{APART.join(tokens)}){GOES_ON if may_go_on(word) else ENDS}")
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(phrases) or '(?!)'})")


def _worth(hits: Sequence[tuple[int, int, str | None]], start: int) -> tuple[int, int]:
    near = [word for start_of_hit, _, word in hits if start <= start_of_hit < start + WIDTH // 2]
    return len(set(near)), len(near)


def _part(text: str, hit: int) -> tuple[int, int]:
    """Return start and end of the part of `text` to show, between words if possible, with a little before the hit."""
    if len(text) <= WIDTH:
        return 0, len(text)
    start = max(0, min(hit - WIDTH // 4, len(text) - WIDTH))
    if start and (blank := re.search(r"\s", text[start:hit])):
        start += blank.end()
    end = min(len(text), start + WIDTH)
    if end < len(text) and (blanks := re.search(r"\s\S*\Z", text[start + WIDTH // 2 : end])):
        end = start + WIDTH // 2 + blanks.start()
    return start, end
