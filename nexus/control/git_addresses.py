"""Addresses of git repositories that an operator configures. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

HOST_AND_PATH = re.compile(r"\w[\w.-]*@\w[\w.-]*:[\w./~][\w./~+-]*", re.ASCII)  # as in git@example.com:shop.git


def is_remote(text: str, schemes: Sequence[str]) -> bool:
    """Return whether a text is an address of one of these schemes, or like git@example.com:shop.git; else it may be a
    path. Raises ValueError for what git must not get."""
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be the address of a repository, or its path")
    if HOST_AND_PATH.fullmatch(text):
        return True
    parts = urlsplit(text)
    if parts.scheme not in schemes or not parts.hostname or not text.isascii() or " " in text:
        return False
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise ValueError("must not hold credentials: git takes them from your own configuration")
    if parts.hostname.startswith("-") or (parts.username or "").startswith("-"):
        raise ValueError("must name a host")
    return True
