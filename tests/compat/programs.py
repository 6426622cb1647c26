"""MCP servers over stdio that take another's place, and the published ones, called alike."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from tests import warm
from tests.acceptance.processes import environment

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Program:
    """A server that has said hello."""

    def __init__(self, process: Any) -> None:
        self._process, self._requests = process, 0
        self.hello = self.request(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
        )
        self._send(method="notifications/initialized")

    def request(self, method: str, **params: Any) -> Any:
        """The answer to a request: its result, or its error."""
        self._requests += 1
        self._send(id=self._requests, method=method, params=params)
        answer = json.loads(self._process.stdout.readline())
        return answer.get("result", answer.get("error"))

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What a tool answers: an object, or the text of an error."""
        answer = self.request("tools/call", name=name, arguments=dict(arguments or {}))
        (content,) = answer["content"]
        assert answer.keys() == ({"content", "isError"} if "isError" in answer else {"content"})
        return content["text"] if answer.get("isError") else json.loads(content["text"])

    def end(self) -> None:
        """Close its input, and wait for its end."""
        self._process.stdin.close()
        self._process.wait()

    def _send(self, **message: Any) -> None:
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


def ours(system: str, home: Path, **more: str) -> Program:
    """`nexus runmcp --as SYSTEM`, with a home of its own."""
    environ = environment(home, NEXUS_STANDALONE="1", **more)
    return Program(warm.Process(["runmcp", "--as", system], environ, stdin=PIPE, stdout=PIPE, text=True))


def published(script: Path, folder: Path, **more: str) -> Program:
    """A published server, run by node in a folder."""
    return Program(
        Popen(["node", str(script)], cwd=folder, stdin=PIPE, stdout=PIPE, text=True, env=environment(folder, **more))
    )


def timeless(value: Any) -> Any:
    """A value with the same text for every time in it."""
    return json.loads(TIME.sub("<time>", json.dumps(value)))
