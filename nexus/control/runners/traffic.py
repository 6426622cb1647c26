"""Logs of the traffic between a model's provider and an agent, and between an agent process and Nexus: one file of JSON
lines for each agent. Each line names its run.

Keys are redacted, and each line, each run and each file is bounded: a full file is renamed to `<agent>.jsonl.1`, which
replaces the one before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nexus.control.runners.base import LOGS, Secrets
from nexus.core.clock import iso, now
from nexus.core.config import CoreSettings
from nexus.core.logs import redact

LARGEST_FILE = 10 * 1024 * 1024  # bytes
LONGEST = 128 * 1024  # characters of a text
MOST_OF_RUN = 8 * 1024 * 1024  # bytes; the rest of a run's traffic is left out
KEY = re.compile(r"\b(nxk_|sk-|gh[a-z]_|github_pat_|glpat-|hf_|AIza|AKIA)[A-Za-z0-9_-]{16,}")
UNKNOWN = 64  # characters of a cut key; a longer part matches its pattern


class Log:
    """The log of one agent's run; `secrets` are redacted."""

    def __init__(self, agent_id: str, *secrets: str, run: str = "") -> None:
        self.path = path_of(agent_id)
        self.secrets = Secrets(*secrets)
        self.run = run
        self._left = MOST_OF_RUN

    def write(self, what: str, text: str, **more: str | int) -> None:
        """Append a line. Errors of the disk are ignored, so that no turn fails because of its log."""
        if self._left <= 0:
            return
        clean = self.struck(text) if len(text) <= LONGEST else self.beginning(text[: 2 * LONGEST])
        line = {"at": iso(now()), "run": self.run, "what": what, **more, "text": clean[:LONGEST]}
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode(errors="replace")
        self._left -= len(data)
        if self._left <= 0:
            line = {"at": iso(now()), "run": self.run, "what": "left out", "text": "The run's further traffic."}
            data = (json.dumps(line) + "\n").encode()
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as written:
                if written.tell() + len(data) > LARGEST_FILE:
                    self.path.replace(f"{self.path}.1")
                written.write(data)

    def struck(self, text: str) -> str:
        """Return the text with keys redacted."""
        return KEY.sub(r"\1***", redact(self.secrets.struck(text)))

    def excerpt(self, text: str, most: int) -> str:
        """Return the beginning of a text, with keys redacted."""
        return self.struck(text)[:most]

    def beginning(self, text: str) -> str:
        """Return a text that was cut, with keys redacted, and without its end, which may hold a part of one."""
        return self.struck(text[: self.secrets.settled(text)])[:-UNKNOWN]


def path_of(agent_id: str) -> Path:
    """Return the path of an agent's log."""
    return CoreSettings.current().home / LOGS / f"{agent_id}.jsonl"


def lines_of(agent_id: str, run: str) -> Iterator[dict[str, Any]]:
    """Yield what the logs of an agent have of a run, oldest first."""
    path, mark = path_of(agent_id), json.dumps({"run": run})[1:-1]
    for each in (Path(f"{path}.1"), path):
        with contextlib.suppress(OSError), each.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if mark not in line:
                    continue  # a hundred times as fast as parsing it
                with contextlib.suppress(ValueError):
                    parsed = json.loads(line)
                    if isinstance(parsed, dict) and parsed.get("run") == run:
                        yield parsed


class Wire:
    """The messages between an agent process and Nexus. The pieces of a text are logged as one message: each could hold
    a part of a secret."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._begun: dict[str, Any] | None = None  # the first message with a piece of the text
        self._kind = ""
        self._parts: list[str] = []
        self._length = 0

    def sent(self, message: Mapping[str, Any]) -> None:
        """Log a message to the agent."""
        self.flush()
        self._log.write("sent", json.dumps(message, ensure_ascii=False))

    def received(self, line: bytes, message: Mapping[str, Any] | None) -> None:
        """Log a line from the agent, which may be no message."""
        kind, text = _piece(message)
        if kind != self._kind or not kind:
            self.flush()
        if not kind:
            self._log.write("received", line[: 2 * LONGEST * 4].decode(errors="replace"))
            return
        if self._begun is None:
            self._begun, self._kind = json.loads(line), kind
        self._parts.append(text[: max(LONGEST - self._length, 0)])
        self._length += len(self._parts[-1])

    def flush(self) -> None:
        """Log the pieces so far."""
        if self._begun is not None:
            self._begun["params"]["update"]["content"]["text"] = "".join(self._parts)
            self._log.write("received", json.dumps(self._begun, ensure_ascii=False), pieces=len(self._parts))
        self._begun, self._kind, self._parts, self._length = None, "", [], 0


def _piece(message: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the kind and the text of an update with a piece of text; empty for other messages."""
    try:
        update = (message or {})["params"]["update"]
        kind, text = update["sessionUpdate"], update["content"]["text"]
    except (KeyError, TypeError, IndexError):
        return "", ""
    is_piece = isinstance(text, str) and isinstance(kind, str) and kind.endswith("_chunk")
    return (kind, text) if is_piece else ("", "")
