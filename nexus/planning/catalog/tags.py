"""Tags in a user's message: `[plan] …`, `[rule:tests] …`. Standard library only: a hook reads every prompt.

A tag counts at the start of the text or after white space, and outside of code: `matrix[d]`, `[d](a link)`, code fences
and `inline code` contain none. It must be spelled exactly as in the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nexus.planning.catalog.bundled import BundledTag

ANY = "*"  # stands for every variant
MAX_VARIANT = 64  # characters
FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
INLINE_CODE = re.compile(r"`[^`]*`")
MARK = re.compile(rf"(?:^|(?<=\s))\[([a-z][a-z0-9_-]*)(?::([^\[\]\s:]{{1,{MAX_VARIANT}}}))?\](?!\()")


class TaggedText(NamedTuple):
    """A tag in a text: the tag's id, the variant that was written, and the text up to the next tag, stripped."""

    tag: str
    variant: str | None
    rest: str


def find_tags(text: str, tags: Iterable[BundledTag]) -> list[TaggedText]:
    """Return the tags of a vocabulary in a text, in the text's order. Never raises; linear in the text's length."""
    whole = {tag.trigger: tag for tag in tags}
    hits: list[tuple[re.Match[str], str, str | None]] = []
    for match in MARK.finditer(_without_code(text)):
        name, variant = match.groups()
        if exact := whole.get(match[0]):
            hits.append((match, exact.id, None))
        elif variant and (tag := whole.get(f"[{name}]")) and not {variant, ANY}.isdisjoint(tag.variants):
            hits.append((match, tag.id, variant))
    ends = [match.start() for match, _, _ in hits] + [len(text)]
    return [
        TaggedText(tag, variant, text[match.end() : end].strip())
        for (match, tag, variant), end in zip(hits, ends[1:], strict=True)
    ]


def _without_code(text: str) -> str:
    """Replace code with other characters, so that offsets stay valid."""
    return "\n".join(_lines_without_code(text))


def _lines_without_code(text: str) -> Iterator[str]:
    fence = ""  # the fence of the block that the line belongs to
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
            yield "x" * len(line)
        elif mark:
            fence = mark[1]
            yield "x" * len(line)
        else:
            yield INLINE_CODE.sub(lambda code: "x" * len(code[0]), line)
