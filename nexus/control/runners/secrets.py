"""Redaction of what only an agent's process may know: it appears in no transcript, draft, log or question."""

from __future__ import annotations

import json
import re
from typing import Any

STRUCK = "***"


class Secrets:
    """Texts that are redacted wherever they occur: as they are, and as JSON escapes them."""

    def __init__(self, *values: str) -> None:
        spelled = {form for value in values for form in (value, json.dumps(value)[1:-1])}
        # Longest first, so that a secret that begins with another is redacted whole.
        self._values = sorted(filter(None, spelled), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values)) or r"(?!)")

    def struck(self, text: str) -> str:
        """Return the text with the secrets redacted."""
        return self._pattern.sub(STRUCK, text)

    def cut(self, text: str, most: int) -> str:
        """Return the beginning of the text with the secrets redacted. If it were cut first, it could end with a part of
        one."""
        return self.struck(text)[:most]

    def struck_of(self, value: Any) -> Any:
        """Return a JSON value with the secrets redacted in all its texts and keys."""
        if isinstance(value, str):
            return self.struck(value)
        if isinstance(value, dict):
            return {self.struck(name): self.struck_of(each) for name, each in value.items()}
        return [self.struck_of(each) for each in value] if isinstance(value, list) else value

    def settled(self, text: str) -> int:
        """Return how many characters of an unfinished text are safe to show: the rest may be the beginning of a
        secret."""
        longest = len(self._values[0]) if self._values else 1
        sure = next(
            (at for at in range(max(len(text) - longest + 1, 0), len(text)) if self._may_go_on(text[at:])), len(text)
        )
        # A complete secret is not split, even if its end may begin another.
        return next((one.start() for one in self._pattern.finditer(text) if one.start() < sure < one.end()), sure)

    def _may_go_on(self, tail: str) -> bool:
        return any(len(tail) < len(value) and value.startswith(tail) for value in self._values)


NONE = Secrets()
