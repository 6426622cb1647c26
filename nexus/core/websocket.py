"""A client that is told over a WebSocket of what it follows, each message with the place to resume from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, ClassVar

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from nexus.core.operations.errors import Code, ErrorCode, NexusError

log = logging.getLogger(__name__)

SLOW_SECONDS = 5  # a client that takes nothing for so long is told its place and closed
FAREWELL_SECONDS = 1
GOING_AWAY, REFUSED, BROKEN, TOO_SLOW = 4001, 4008, 4011, 4013  # RFC 6455 leaves 4000 and up to applications


class Listener(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One client. Who may listen, to what, and how an item is told are its subclass's."""

    place_key: ClassVar[str]  # what messages and the query call the place
    refusals: ClassVar[tuple[ErrorCode, ...]] = (Code.NOT_OWNER, Code.NOT_ALLOWED)  # by others, the store is away

    following: asyncio.Task[None] | None = None

    @property
    def place(self) -> Any:
        """Behind what was told so far."""
        raise NotImplementedError

    async def pass_on(self, item: Any) -> None:
        """Tell an item."""
        raise NotImplementedError

    def farewell(self) -> tuple[str, int]:
        """Why nothing more comes, where nothing went wrong, and the code to close with."""
        return "The server goes down.", GOING_AWAY

    def follow(self, items: AsyncGenerator[Any, None]) -> None:
        """Tell what comes, until the client leaves or no more does."""
        self.following = asyncio.create_task(self._follow(items))

    async def disconnect(self, code: int) -> None:
        if self.following is not None:
            self.following.cancel()
            await asyncio.wait([self.following])

    async def tell(self, type: str, **content: Any) -> None:
        """One message."""
        await self.send_json({"type": type, self.place_key: self.place, **content})

    async def _follow(self, items: AsyncGenerator[Any, None]) -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    async with asyncio.timeout(SLOW_SECONDS):
                        await self.pass_on(item)
            await self._end(*self.farewell())
        except TimeoutError:
            # What was being sent stands in the connection's buffer: the client has it before it has this.
            await self._end(f"You read too slowly. Connect again from this {self.place_key}.", TOO_SLOW)
        except NexusError as error:
            await self._end(error.message, REFUSED if error.code in self.refusals else BROKEN)
        except Exception:
            log.exception("a listener could not be served")
            await self._end(f"The server failed. Connect again from this {self.place_key}.", BROKEN)

    async def _end(self, reason: str, code: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.tell("closing", reason=reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.close(code)
