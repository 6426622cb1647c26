"""Progress notices of a waiting call, so that its client does not give up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from mcp_bridge.context import Context, is_modern
from nexus.core.operations.replies import Outcome

FIRST_SECONDS, MOST_SECONDS = 1.0, 15.0  # between two notices: clients give up after 60 s of silence, some earlier


async def with_progress(ctx: Context, name: str, performing: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Return the outcome of a waiting call. Until then, send progress notices with the seconds so far, if the request
    has a token for them."""
    token = (ctx.meta or {}).get("progress_token")
    if token is None:
        return await performing
    call, started, pace = asyncio.ensure_future(performing), time.monotonic(), FIRST_SECONDS
    try:
        while not (await asyncio.wait({call}, timeout=pace))[0]:
            seconds, message = round(time.monotonic() - started, 3), f"{name} waits."
            if is_modern(ctx):
                await ctx.session.report_progress(seconds, message=message)
            else:  # on the session's own stream: over HTTP the answer is one JSON body
                await ctx.session.send_progress_notification(token, seconds, message=message)
            pace = min(2 * pace, MOST_SECONDS)
        return call.result()
    finally:
        call.cancel()
