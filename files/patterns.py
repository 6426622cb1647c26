r"""The patterns of reservations: gitignore's, and whether two of them can match one file.

A path is names joined by `/`, relative to the project. A glob without a slash, as `*.py`, matches at any depth, all
else from the project's root; so does a plain name, which git looks for everywhere: `src` is the root's, `**/src` any.
Either stands for a file, or a directory with everything below it: `dir/` for the directory alone, and what ends in an
extension (`*.py`, `app.py`) for files alone, where git would take a directory of such a name, too. Upper and lower case
differ; letters with marks are compared in their composed form (NFC).

Libraries match a path against such a pattern (pathspec), or intersect regular expressions of any kind (greenery) at a
thousand times the price: none decides on two globs. Both decisions are one here, as a path is a pattern, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

MAX_PATTERN = 1024  # characters
MAX_WILD = 100  # characters of a part with wildcards; a longer one costs too much to compare
PLACE_PARTS, PLACE_LENGTH = 8, 64
EXTENSION_LENGTH = 16

Ranges = tuple[tuple[int, int], ...]  # of code points, in order, apart: what one character may be
Name = tuple[Ranges, ...]  # of a part with wildcards, what each character may be; STAR any number of any
Part = str | Name | None  # of a path: a literal name, one with wildcards, or DEEP

STAR: Ranges = ()
DEEP = None  # any number of names, or none
SLASH, LAST = ord("/"), 0x10FFFF
ANY: Ranges = ((1, SLASH - 1), (SLASH + 1, LAST))
ANY_NAME: Name = (ANY, STAR)
POSIX = {
    "alnum": "09AZaz", "alpha": "AZaz", "blank": "\t\t  ", "cntrl": "\x01\x1f\x7f\x7f", "digit": "09", "graph": "!~",
    "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ", "xdigit": "09AFaf",
}  # fmt: skip


def normalized(text: str) -> str:
    """A pattern in the form that is kept and compared: `./src//a.py` is `src/a.py`, `./Makefile` is `/Makefile`.

    The root itself is `/**`. Raises ValueError, with what to write instead, for one that can match no file below the
    root.
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
    read = [_part(name) for name in names]
    anchored = "/" in text.rstrip("/") or text.startswith("/") or isinstance(read[0], str)
    return ("/" if anchored and len(names) == 1 else "") + "/".join(names) + ("/" if text.endswith("/") else "")


def literal(name: str) -> str:
    """The pattern of exactly this name, whatever is in it."""
    return "".join(rf"\{character}" if character in r"\*?[" else character for character in name)


def place(pattern: str) -> str:
    """Where a normalized pattern leads: of its first literal parts, eight hexadecimal digits each.

    Of two patterns that overlap the place of one begins with the place of the other.
    """
    digits = ""
    for part in _parts(pattern)[:PLACE_PARTS]:
        if not isinstance(part, str):
            break
        digits += _digits(part)
    return digits


def extension(pattern: str) -> str:
    """The extension of every file that a normalized pattern matches, without the dot; empty where it tells none.

    Two patterns with different ones do not overlap.
    """
    name = pattern.rpartition("/")[2]
    last = name.rpartition(".")[2]
    told = name and _has_extension(name) and last.isascii() and last.isalnum() and len(last) <= EXTENSION_LENGTH
    return last if told else ""


def ending(path: str) -> str:
    """What a pattern that tells an extension tells, if it matches a file of that path."""
    return composed(path).rstrip("/").rpartition(".")[2]


def places(path: str) -> Iterator[str]:
    """The places of the patterns that can match a file, given by its path relative to the project's root."""
    digits = ""
    yield digits
    for name in composed(path).split("/")[:PLACE_PARTS]:
        digits += _digits(name)
        yield digits


@lru_cache(maxsize=16_384)
def _digits(name: str) -> str:
    return f"{zlib.crc32(name.encode(errors='surrogateescape')):08x}"  # a file's name need be no text


def overlap(one: str, other: str) -> bool:
    """Whether a path exists that both normalized patterns match."""
    return _meet(_parts(one), _parts(other))


def matches(pattern: str, path: str) -> bool:
    """Whether a normalized pattern matches a file, given by its path relative to the project's root."""
    path = composed(path)
    return path.endswith(tail(pattern)) and _meet(_parts(pattern), tuple(path.split("/")))


@lru_cache(maxsize=16_384)
def tail(pattern: str) -> str:
    """What every path, in its composed form, ends with that a normalized pattern matches; it may be empty."""
    last = _parts(pattern)[-1]
    if last is DEEP or isinstance(last, str):
        return last or ""
    literals = (chr(each[0][0]) if each != STAR and each[0][0] == each[-1][1] else "" for each in reversed(last))
    return "".join(takewhile(bool, literals))[::-1]


def composed(text: str) -> str:
    """A text with its letters and their marks composed (NFC)."""
    if text.isascii():
        return text
    import unicodedata  # most names need nothing of it

    return unicodedata.normalize("NFC", text)


def _without_trailing_spaces(text: str) -> str:
    """As git reads a line: spaces at its end count when a backslash stands before them."""
    stripped = text.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2
    return text[: len(stripped) + escaped]


@lru_cache(maxsize=16_384)
def _parts(pattern: str) -> tuple[Part, ...]:
    """What a path has to be, part by part, to be matched by a normalized pattern."""
    names = pattern.strip("/").split("/")
    parts: list[Part] = [] if "/" in pattern.rstrip("/") else [DEEP]
    for name in names:
        if name != "**":
            parts.append(_part(name))
        elif not parts or parts[-1] is not DEEP:
            parts.append(DEEP)
    if names[-1] == "**":
        parts[-1:] = [ANY_NAME, DEEP]  # what is in a directory, and not itself
    elif not _has_extension(names[-1]) and not pattern.endswith("/"):
        parts.append(DEEP)
    if pattern.endswith("/"):
        parts += [ANY_NAME, DEEP]
    return tuple(parts)


@lru_cache(maxsize=16_384)
def _part(name: str) -> str | Name:
    """A part of a pattern. Raises ValueError for one that matches no name."""
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


def _characters(name: str) -> Iterator[str | Ranges]:
    """What each character of a part may be: a literal one, or a wildcard."""
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
    """A class of characters from behind its bracket on, and the position behind it."""
    negated = name[position : position + 1] in ("!", "^")
    position += negated
    first, found = position, []
    while position < len(name) and (name[position] != "]" or position == first):
        kind, closed, _ = name[position + 2 :].partition(":]")
        if name.startswith("[:", position) and closed:
            if kind not in POSIX:
                raise ValueError(f"has a class [:{kind[:20]}:] that there is not; use one of {', '.join(POSIX)}")
            ends = POSIX[kind]
            found += [(ord(ends[place]), ord(ends[place + 1])) for place in range(0, len(ends), 2)]
            position += len(kind) + 4
            continue
        low, position = _member(name, position)
        high = low
        if name[position : position + 1] == "-" and name[position + 1 : position + 2] not in ("", "]"):
            high, position = _member(name, position + 1)
        found.append((ord(low), ord(high)))
    if position >= len(name):
        raise ValueError(r"has a [ without its ]; a bracket that counts is \[")
    ranges = _common(_others(found) if negated else _joined(found), ANY)
    if not ranges:
        raise ValueError("has a class that no character is in")
    return ranges, position + 1


def _member(name: str, position: int) -> tuple[str, int]:
    """A character of a class, and the position behind it."""
    position += name[position] == "\\"
    if position == len(name):
        raise ValueError(r"has a [ without its ]; a bracket that counts is \[")
    return name[position], position + 1


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    """Ranges in order, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(range for range in ranges if range[0] <= range[1]):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return tuple(joined)


def _others(ranges: list[tuple[int, int]]) -> Ranges:
    """The characters that are in none of the ranges."""
    joined = _joined(ranges)
    lows = [1, *(high + 1 for _, high in joined)]
    highs = [*(low - 1 for low, _ in joined), LAST]
    return tuple((low, high) for low, high in zip(lows, highs, strict=True) if low <= high)


@lru_cache(maxsize=16_384)
def _common(one: Ranges, other: Ranges) -> Ranges:
    """The characters that are in both."""
    return tuple(
        (max(low, bottom), min(high, top))
        for low, high in one
        for bottom, top in other
        if max(low, bottom) <= min(high, top)
    )


def _has_extension(name: str) -> bool:
    """Whether a part ends in `.py` or the like: letters, digits or wildcards for one character, a letter among them,
    behind a dot that is not its first character."""
    part = _part(name)
    characters = part if isinstance(part, str) else ["" if ranges == STAR else _only(ranges) for ranges in part]
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
    """The one character that is in the ranges; `?` for several."""
    return chr(ranges[0][0]) if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else "?"


def _meet(one: tuple[Part, ...], other: tuple[Part, ...]) -> bool:
    """Whether a path exists that is both: both are read together, from every pair of parts that can be reached."""
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        first, second = pending.pop()
        if first == len(one) and second == len(other):
            return True
        a = one[first] if first < len(one) else ANY_NAME
        b = other[second] if second < len(other) else ANY_NAME
        steps = []
        if a is DEEP:
            steps.append((first + 1, second))
        if b is DEEP:
            steps.append((first, second + 1))
        if first < len(one) and second < len(other) and (a is DEEP or b is DEEP or a == b or _names_meet(a, b)):
            steps.append((first + (a is not DEEP), second + (b is not DEEP)))
        for step in steps:
            if step not in seen:
                seen.add(step)
                pending.append(step)
    return False


def _names_meet(one: str | Name, other: str | Name) -> bool:
    """Whether a name exists that is both."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return _ends_meet(one, other, 0) and _ends_meet(one, other, -1) and _spelled_alike(one, other)


def _ends_meet(one: str | Name, other: str | Name, end: int) -> bool:
    """Whether the first or the last characters may be the same: this alone tells most names apart."""
    a, b = (_one(name[end]) if isinstance(name, str) else name[end] for name in (one, other))
    return a == STAR or b == STAR or bool(_common(a, b))


@lru_cache(maxsize=65_536)
def _spelled_alike(one: str | Name, other: str | Name) -> bool:
    """Whether a name exists that is both: `reached` holds a bit for each position in `other` that can be reached
    together with a position in `one`."""
    across, down = _spelled(one), _spelled(other)
    end, stars = 1 << len(down), sum(1 << place for place, ranges in enumerate(down) if ranges == STAR)
    fitting = {ranges: _fitting(ranges, down) for ranges in set(across)}
    reached = 1
    for ranges in across:
        reached |= (reached & stars) << 1
        if ranges == STAR:
            reached = (end << 1) - (reached & -reached)  # it reads whatever the other reads
        else:
            reached = (reached & fitting[ranges]) << 1 | reached & stars
        if not reached:
            return False
    return bool((reached | (reached & stars) << 1) & end)


def _fitting(ranges: Ranges, name: Name) -> int:
    """A bit for each position in a name whose character may be one of the ranges."""
    return sum(1 << place for place, others in enumerate(name) if _common(ranges, others))


def _spelled(name: str | Name) -> Name:
    return tuple(map(_one, name)) if isinstance(name, str) else name


def _one(character: str) -> Ranges:
    return ((ord(character), ord(character)),)
