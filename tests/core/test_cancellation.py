"""What happens to a call whose client leaves."""

from __future__ import annotations

import asyncio
from typing import Any

from nexus.core.cancellation import while_there


async def test_a_client_that_is_gone_once_it_is_answered_cancels_nothing() -> None:
    answered = asyncio.Event()

    async def receive() -> Any:
        await answered.wait()
        return {"type": "http.disconnect"}

    async def work() -> str:
        answered.set()
        await asyncio.sleep(0)  # the server says so meanwhile
        return "done"

    assert await while_there(receive, work()) == "done"
