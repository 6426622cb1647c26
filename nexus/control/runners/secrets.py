"""What an agent process is given and nobody else is to read: it stands in no transcript, draft, log or question."""

from __future__ import annotations

import json
import re
from typing import Any

STRUCK = "***"


class Secrets:
    """Texts that are struck from all that is told: as they are, and as JSON spells them."""

    def __init__(self, *values: str) -> None:
        spelled = {form for value in values for form in (value, json.dumps(value)[1:-1])}
        # The longest first: of one that begins with another, nothing stays.
        self._values = sorted(filter(None, spelled), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values)) or r"(?!)")

    def struck(self, text: str) -> str:
        """A text without them."""
        return self._pattern.sub(STRUCK, text)

    def cut(self, text: str, most: int) -> str:
        """The beginning of a text without them. Cut before, it could end in the beginning of one."""
        return self.struck(text)[:most]

    def struck_of(self, value: Any) -> Any:
        """A JSON value whose texts are without them, the names in it included."""
        if isinstance(value, str):
            return self.struck(value)
        if isinstance(value, dict):
            return {self.struck(name): self.struck_of(each) for name, each in value.items()}
        return [self.struck_of(each) for each in value] if isinstance(value, list) else value

    def settled(self, text: str) -> int:
        """How much of a text that goes on is sure: what is behind it may be the beginning of one."""
        longest = len(self._values[0]) if self._values else 1
        sure = next(
            (at for at in range(max(len(text) - longest + 1, 0), len(text)) if self._may_go_on(text[at:])), len(text)
        )
        # One that is whole is not cut, though its end may begin another.
        return next((one.start() for one in self._pattern.finditer(text) if one.start() < sure < one.end()), sure)

    def _may_go_on(self, tail: str) -> bool:
        return any(len(tail) < len(value) and value.startswith(tail) for value in self._values)


NONE = Secrets()
