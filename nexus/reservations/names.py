"""The names in the patterns of reservations: literal ones, and those with wildcards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

MAX_WILD = 100  # characters of a name with wildcards; a longer one is too expensive to compare

Name = str | tuple[str, ...]  # a literal name, or the characters of one with wildcards

STAR, ANY = "", "/"  # any number of any characters, and one of them: no name has either as a character
WILD = (STAR, ANY)
ANY_NAME: Name = (ANY, STAR)


@lru_cache(maxsize=16_384)
def parse_name(name: str) -> Name:
    """Parse a name of a pattern. Raises ValueError for one that matches no name."""
    characters = list(_characters(name))
    if not any(character in WILD for character in characters):
        return "".join(characters)
    if len(characters) > MAX_WILD:
        raise ValueError(f"has a part with wildcards of more than {MAX_WILD} characters; shorten it with *")
    if set(characters) == {STAR}:
        return ANY_NAME
    made: list[str] = []
    for character in characters:
        if character != STAR or not made or made[-1] != STAR:
            made.append(character)
    return tuple(made)


def end_of(name: Name) -> str:
    """Return the text with which every matching name ends; it may be empty."""
    return "".join(takewhile(lambda character: character not in WILD, reversed(name)))[::-1]


def has_extension(name: Name) -> bool:
    """Return whether a name ends in `.py` or the like: letters, digits or one-character wildcards, a letter among
    them, after a dot that is not its first character."""
    behind: list[str] = []
    for character in reversed(name[1:]):
        if character == ".":
            return any(character.isalpha() for character in behind)
        if character == STAR or not (character.isalnum() or character in f"{ANY}?_-+~"):
            return False
        behind.append(character)
    return False


def _characters(name: str) -> Iterator[str]:
    """Yield the characters: literal ones, STAR, and ANY."""
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
        else:
            yield character
