"""The patterns of reservations: gitignore's syntax without classes such as `[ab]`, and whether two of them can match
the same file. Brackets are ordinary characters, as in `app/[id]/page.tsx`.

A path is names joined by `/`, relative to the project. A glob without a slash, such as `*.py`, matches at any depth;
everything else from the project's root, also a plain name, which git would find at any depth: `src` is the root's,
`**/src` any. Both stand for a file, or a directory with everything below it: `dir/` for the directory alone, and what
ends in an extension (`*.py`, `app.py`) for files alone, where git would also match a directory. Upper and lower case
differ; letters with marks are compared in their composed form (NFC).

Two or more stars are `**` where they are a whole name. They also are after the literal beginning of a pattern with a
slash, as git compares that beginning separately: `a**/b` stands for `ab` and for `a*/**/b`.

Libraries match a path against such a pattern (pathspec), or intersect any regular expressions (greenery) at a thousand
times the cost: none compares two globs. Here both comparisons are one, because a path is a pattern, too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from nexus.reservations.names import ANY, ANY_NAME, STAR, Name, end_of, has_extension, parse_name

MAX_PATTERN = 1024  # characters
PLACE_PARTS, PLACE_LENGTH = 8, 64
EXTENSION_LENGTH = 16

Part = Name | None  # of a path: a name or DEEP

DEEP = None  # any number of names, also none
# A literal beginning, the stars after it with any names of stars that follow, and the rest.
BEGINNING = re.compile(r"/?([^*?\\]*[^*?\\/])\*\*+(?:/\*\*+)*(?:/(.*))?$")


def normalized(text: str) -> str:
    """Return a pattern in the form that is stored and compared: `./src//a.py` is `src/a.py`, `./Makefile` is
    `/Makefile`.

    The root itself is `/**`. Raises ValueError, with what to write instead, for one that can match no file below
    the root.
    """
    text = _without_trailing_spaces(composed(text))
    if not text.strip():
        raise ValueError("is empty; name a file, a directory or a glob below the project's root")
    if len(text) > MAX_PATTERN:
        raise ValueError(f"has more than {MAX_PATTERN} characters; name a directory above it")
    if any(character < "\xa0" and not character.isprintable() for character in text):
        raise ValueError("has a control character; put ? in its place")
    if text.startswith("!"):
        raise ValueError(r"begins with !, and nothing can be taken out of a reservation; a name begins with \!")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError("has a part .. in it; write it without, below the project's root")
    if not names:
        return "/**"
    first, *_ = [parse_name(name) for name in names]
    anchored = "/" in text.rstrip("/") or text.startswith("/") or isinstance(first, str)
    kept = ("/" if anchored and len(names) == 1 else "") + "/".join(names) + ("/" if text.endswith("/") else "")
    _alternatives(kept)  # a name with an alternative inserted may be too long
    return kept


def literal(name: str) -> str:
    """Return the pattern that matches exactly this name, whatever it contains."""
    return "".join(rf"\{character}" if character in r"\*?" else character for character in name)


def prefix_key(pattern: str) -> str:
    """Return the index key of a normalized pattern: eight hexadecimal digits for each of its first literal parts.

    Of two patterns that overlap, the key of one is a prefix of the other's.
    """
    digits = ""
    for part in _alternatives(pattern)[0][:PLACE_PARTS]:
        if not isinstance(part, str):
            break
        digits += _digits(part)
    return digits


def extension(pattern: str) -> str:
    """Return the extension of every file that a normalized pattern matches, without the dot; empty where it has none.

    Two patterns with different extensions do not overlap.
    """
    name = pattern.rpartition("/")[2]
    last = name.rpartition(".")[2]
    certain = (
        name and has_extension(parse_name(name)) and last.isascii() and last.isalnum() and len(last) <= EXTENSION_LENGTH
    )
    return last if certain else ""


def ending(path: str) -> str:
    """Return the extension that a pattern must have, if it has one, to match a file of that path."""
    return composed(path).rstrip("/").rpartition(".")[2]


def prefix_keys(path: str) -> Iterator[str]:
    """Yield the index keys of the patterns that can match a file, given by its path relative to the project's root."""
    digits = ""
    yield digits
    for name in composed(path).split("/")[:PLACE_PARTS]:
        digits += _digits(name)
        yield digits


@lru_cache(maxsize=16_384)
def _digits(name: str) -> str:
    return f"{zlib.crc32(name.encode(errors='surrogateescape')):08x}"  # a file's name may be invalid UTF-8


def overlap(one: str, other: str) -> bool:
    """Return whether a path exists that both normalized patterns match."""
    return any(_paths_meet(each, facing) for each in _alternatives(one) for facing in _alternatives(other))


def matches(pattern: str, path: str) -> bool:
    """Return whether a normalized pattern matches a file, given by its path relative to the project's root."""
    path = composed(path)
    names = tuple(path.split("/"))
    return path.endswith(tail(pattern)) and any(_paths_meet(parts, names) for parts in _alternatives(pattern))


@lru_cache(maxsize=16_384)
def tail(pattern: str) -> str:
    """Return the text with which every matching path ends, in its composed form; it may be empty."""
    last = _alternatives(pattern)[0][-1]
    return "" if last is DEEP else end_of(last)


def composed(text: str) -> str:
    """Return a text with its letters and marks composed (NFC)."""
    if text.isascii():
        return text
    import unicodedata  # most names do not need it

    return unicodedata.normalize("NFC", text)


def _without_trailing_spaces(text: str) -> str:
    """Strip trailing spaces as git does: they count when a backslash stands before them."""
    stripped = text.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2
    return text[: len(stripped) + escaped]


@lru_cache(maxsize=16_384)
def _alternatives(pattern: str) -> tuple[tuple[Part, ...], ...]:
    """Return the alternatives of a normalized pattern, each as the parts of a path. The first one begins and ends with
    the fewest literal parts."""
    text, below = pattern.rstrip("/"), "/" if pattern.endswith("/") else ""
    found = BEGINNING.match(text) if "/" in text else None
    if found is None:
        return (_parts(pattern),)
    beginning, rest = found.groups()
    if not rest:
        return (_parts(f"/{beginning}*{below}"),)
    return _parts(f"/{beginning}*/**/{rest}{below}"), _parts(f"/{beginning}{rest}{below}")


def _parts(pattern: str) -> tuple[Part, ...]:
    """Return the parts of a path that match a pattern in which every star is an ordinary one."""
    names = ["**" if len(name) > 1 and set(name) == {"*"} else name for name in pattern.strip("/").split("/")]
    parts: list[Part] = [] if "/" in pattern.rstrip("/") else [DEEP]
    for name in names:
        if name != "**":
            parts.append(parse_name(name))
        elif not parts or parts[-1] is not DEEP:
            parts.append(DEEP)
    if names[-1] == "**":
        parts[-1:] = [ANY_NAME, DEEP]  # the content of a directory, without itself
    elif not has_extension(parse_name(names[-1])) and not pattern.endswith("/"):
        parts.append(DEEP)
    if pattern.endswith("/"):
        parts += [ANY_NAME, DEEP]
    return tuple(parts)


def _paths_meet(one: tuple[Part, ...], other: tuple[Part, ...]) -> bool:
    """Return whether a path exists that both match."""
    return _meet(one, other, DEEP, _names_meet)


@lru_cache(maxsize=16_384)
def _names_meet(one: Name, other: Name) -> bool:
    """Return whether a name exists that both match."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return _meet(one, other, STAR, lambda here, there: here == there or ANY in (here, there))


def _meet(one: Sequence[Part], other: Sequence[Part], some: Part, meet: Callable[[Any, Any], bool]) -> bool:
    """Return whether a sequence exists that both match, item by item. `some` stands for any number of items, also none;
    `meet` says whether one item may be both of two others. It takes a step for each pair of items."""
    # By length, whether that beginning of `other` may be what the beginning of `one` so far is: at first nothing.
    reached = [True]
    for facing in other:
        reached.append(reached[-1] and facing == some)
    for item in one:
        before, reached = reached, [reached[0] and item == some]
        for at, facing in enumerate(other, 1):
            if item == some or facing == some:  # it stands for nothing, or for what is opposite
                reached.append(before[at] or reached[at - 1])
            else:
                reached.append(before[at - 1] and meet(item, facing))
    return reached[-1]
