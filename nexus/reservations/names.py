"""The names in the patterns of reservations: literal ones, and those with wildcards.

A name with wildcards is a sequence of character classes, with STAR for any number of any characters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby, takewhile

MAX_WILD = 100  # characters of a name with wildcards; a longer one is too expensive to compare

Ranges = tuple[tuple[int, int], ...]  # sorted, disjoint ranges of code points: what one character may be
Wild = tuple[Ranges, ...]  # what each character may be; STAR is any number of any
Name = str | Wild

STAR: Ranges = ()
SLASH, LAST = ord("/"), 0x10FFFF
ANY: Ranges = ((1, SLASH - 1), (SLASH + 1, LAST))
ANY_NAME: Wild = (ANY, STAR)
POSIX = {
    "alnum": "09AZaz", "alpha": "AZaz", "blank": "\t\t  ", "cntrl": "\x01\x1f\x7f\x7f", "digit": "09", "graph": "!~",
    "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ", "xdigit": "09AFaf",
}  # fmt: skip


@lru_cache(maxsize=16_384)
def read(name: str) -> Name:
    """Parse a name of a pattern. Raises ValueError for one that matches no name."""
    characters = list(_characters(name))
    if all(isinstance(character, str) for character in characters):
        return "".join(map(str, characters))
    if len(characters) > MAX_WILD:
        raise ValueError(f"has a part with wildcards of more than {MAX_WILD} characters; shorten it with *")
    if set(characters) == {STAR}:
        return ANY_NAME
    made: list[Ranges] = []
    for character in characters:
        if character != STAR or not made or made[-1] != STAR:
            made.append(_one(character) if isinstance(character, str) else character)
    return tuple(made)


def end_of(name: Name) -> str:
    """Return the text with which every matching name ends; it may be empty."""
    if isinstance(name, str):
        return name
    literals = (chr(each[0][0]) if each != STAR and each[0][0] == each[-1][1] else "" for each in reversed(name))
    return "".join(takewhile(bool, literals))[::-1]


def literals(name: Name) -> list[str]:
    """Return the runs of literal characters in a name: every matching name contains all of them."""
    if isinstance(name, str):
        return [name]
    spelled_out = ("" if (character := single(ranges)) is None else chr(character) for ranges in name)
    return ["".join(run) for literal, run in groupby(spelled_out, bool) if literal]


def has_extension(name: Name) -> bool:
    """Return whether a name ends in `.py` or the like: letters, digits or one-character wildcards, a letter among
    them, after a dot that is not its first character."""
    characters = name if isinstance(name, str) else ["" if ranges == STAR else _only(ranges) for ranges in name]
    behind: list[str] = []
    for position in range(len(characters) - 1, 0, -1):
        character = characters[position]
        if character == ".":
            return any(character.isalpha() for character in behind)
        if character == "" or not (character.isalnum() or character in "?_-+~"):
            return False
        behind.append(character)
    return False


def _only(ranges: Ranges) -> str:
    """Return the one character in the ranges; `?` for several."""
    character = single(ranges)
    return "?" if character is None else chr(character)


def spelled(name: Name) -> Wild:
    """Return a name as a sequence of classes, whether or not it has wildcards."""
    return tuple(map(_one, name)) if isinstance(name, str) else name


def _one(character: str) -> Ranges:
    return ((ord(character), ord(character)),)


def _characters(name: str) -> Iterator[str | Ranges]:
    """Yield what each character may be: a literal one, or a wildcard."""
    position = 0
    while position < len(name):
        character = name[position]
        position += 1
        if character == "\\":
            if position == len(name):
                raise ValueError(r"ends a part with a single backslash; \\ is one that counts")
            yield name[position]
            position += 1
        elif character == "*":
            yield STAR
        elif character == "?":
            yield ANY
        elif character == "[":
            ranges, position = _class(name, position)
            yield ranges
        else:
            yield character


def _class(name: str, position: int) -> tuple[Ranges, int]:
    """Parse a character class after its bracket; return it and the position after it."""
    negated = name[position : position + 1] in ("!", "^")
    position += negated
    first, found = position, []
    while position < len(name) and (name[position] != "]" or position == first):
        kind, closed, _ = name[position + 2 :].partition(":]")
        if name.startswith("[:", position) and closed:
            if kind not in POSIX:
                raise ValueError(f"has a class [:{kind[:20]}:] that there is not; use one of {', '.join(POSIX)}")
            ends = POSIX[kind]
            found += [(ord(ends[index]), ord(ends[index + 1])) for index in range(0, len(ends), 2)]
            position += len(kind) + 4
            continue
        low, position = _member(name, position)
        high = low
        if name[position : position + 1] == "-" and name[position + 1 : position + 2] not in ("", "]"):
            high, position = _member(name, position + 1)
        found.append((ord(low), ord(high)))
    if position >= len(name):
        raise ValueError(r"has a [ without its ]; a bracket that counts is \[")
    ranges = common(_others(found) if negated else _joined(found), ANY)
    if not ranges:
        raise ValueError("has a class that no character is in")
    return ranges, position + 1


def _member(name: str, position: int) -> tuple[str, int]:
    """Parse a character of a class; return it and the position after it."""
    position += name[position] == "\\"
    if position == len(name):
        raise ValueError(r"has a [ without its ]; a bracket that counts is \[")
    return name[position], position + 1


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    """Return ranges in order, with adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(range for range in ranges if range[0] <= range[1]):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return tuple(joined)


def _others(ranges: list[tuple[int, int]]) -> Ranges:
    """Return the characters that are in none of the ranges."""
    joined = _joined(ranges)
    lows = [1, *(high + 1 for _, high in joined)]
    highs = [*(low - 1 for low, _ in joined), LAST]
    return tuple((low, high) for low, high in zip(lows, highs, strict=True) if low <= high)


@lru_cache(maxsize=16_384)
def common(one: Ranges, other: Ranges) -> Ranges:
    """Return the characters that are in both."""
    found: list[tuple[int, int]] = []
    first = second = 0
    while first < len(one) and second < len(other):
        low, high = max(one[first][0], other[second][0]), min(one[first][1], other[second][1])
        if low <= high:
            found.append((low, high))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return tuple(found)


def single(ranges: Ranges) -> int | None:
    """Return the one character in the ranges; None for several."""
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


def holds(ranges: Ranges, character: int) -> bool:
    """Return whether a character is in the ranges."""
    index = bisect_right(ranges, (character, LAST)) - 1
    return index >= 0 and character <= ranges[index][1]
