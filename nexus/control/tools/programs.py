"""Programs that an agent runs: bounded in time and output, and ended with all that they started when the call ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nexus.control.rules import Permissions
from nexus.control.runners import processes
from nexus.control.runners.base import RunnerFailed
from nexus.control.tools.paths import ToolFailed, check_tool

KEPT = 16 * 1024  # bytes of the output's beginning, and of its end
MOST_OUTPUT = 64 * 1024 * 1024  # bytes; a program that prints more is ended


@dataclass(frozen=True)
class Ran:
    """The end of a program: its exit code and output."""

    code: int | None  # 128 plus the number of the signal that ended it; None: ended by us
    output: str
    why: str | None = None  # why it was ended by us


async def run(permissions: Permissions, line: Sequence[str], *, env: Mapping[str, str], seconds: float) -> Ran:
    """Run a command line in the agent's directory and return what it prints, stderr included. Raises ToolFailed.

    It gets no input, and `env` as its environment. After `seconds`, or when cancelled, it is ended with all it started.
    """
    check_tool(permissions, "run")
    output, code, why = Output(), None, None
    try:
        async with processes.running(
            line, cwd=permissions.cwd, env=env, stdin=processes.DEVNULL, merged=True
        ) as program:
            try:
                async with asyncio.timeout(seconds):
                    if await output.fill(program.stdout):
                        code = await program.ended()
                    else:
                        why = f"it printed over {MOST_OUTPUT} bytes"
            except TimeoutError:
                why = f"it took longer than {seconds:g} seconds"
    except RunnerFailed as failed:
        raise ToolFailed(f"The program cannot be started: {failed}.") from None
    return Ran(code, output.text(), why)


class Output:
    """The beginning and the end of an output."""

    def __init__(self) -> None:
        self.first, self.last, self.size = bytearray(), bytearray(), 0

    async def fill(self, stream: asyncio.StreamReader) -> bool:
        """Read to the end; False if that does not come in time."""
        while data := await stream.read(processes.CHUNK):
            self.size += len(data)
            room = max(KEPT - len(self.first), 0)
            self.first += data[:room]
            self.last = (self.last + data[room:])[-KEPT:]
            if self.size > MOST_OUTPUT:
                return False
            await asyncio.sleep(processes.PAUSE_SECONDS)
        return True

    def text(self) -> str:
        """Return what is kept, as text."""
        left_out = self.size - len(self.first) - len(self.last)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return (bytes(self.first) + gap + bytes(self.last)).decode(errors="replace")
