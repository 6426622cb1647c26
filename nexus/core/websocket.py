"""A WebSocket that sends a client the items that it follows, each message with the position to resume from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, ClassVar

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from nexus.core.operations.errors import Code, ErrorCode, NexusError

log = logging.getLogger(__name__)

SLOW_SECONDS = 5  # a client that reads nothing for so long gets its position and is closed
FAREWELL_SECONDS = 1
GOING_AWAY, REFUSED, BROKEN, TOO_SLOW = 4001, 4008, 4011, 4013  # RFC 6455 leaves 4000 and up to applications


class Listener(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One client's connection. A subclass decides who may listen, to what, and how an item is sent."""

    position_key: ClassVar[str]  # what messages and the query call the position
    refusals: ClassVar[tuple[ErrorCode, ...]] = (Code.NOT_OWNER, Code.NOT_ALLOWED)  # by others, the store is away

    following: asyncio.Task[None] | None = None

    @property
    def position(self) -> Any:
        """The position after everything that was sent."""
        raise NotImplementedError

    async def pass_on(self, item: Any) -> None:
        """Send an item."""
        raise NotImplementedError

    def farewell(self) -> tuple[str, int]:
        """Return why nothing more comes, if nothing went wrong, and the code to close with."""
        return "The server goes down.", GOING_AWAY

    def follow(self, items: AsyncGenerator[Any, None]) -> None:
        """Send the items until the client disconnects or there are no more."""
        self.following = asyncio.create_task(self._follow(items))

    async def disconnect(self, code: int) -> None:
        if self.following is not None:
            self.following.cancel()
            await asyncio.wait([self.following])

    async def send_message(self, type: str, **content: Any) -> None:
        """Send one message."""
        await self.send_json({"type": type, self.position_key: self.position, **content})

    async def _follow(self, items: AsyncGenerator[Any, None]) -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    async with asyncio.timeout(SLOW_SECONDS):
                        await self.pass_on(item)
            await self._end(*self.farewell())
        except TimeoutError:
            # What was being sent stands in the connection's buffer: the client has it before it has this.
            await self._end(f"You read too slowly. Connect again from this {self.position_key}.", TOO_SLOW)
        except OSError:
            pass  # the client left, as ASGI says it
        except NexusError as error:
            await self._end(error.message, REFUSED if error.code in self.refusals else BROKEN)
        except Exception:
            log.exception("a listener could not be served")
            await self._end(f"The server failed. Connect again from this {self.position_key}.", BROKEN)

    async def _end(self, reason: str, code: int) -> None:
        with suppress(OSError):  # too slow, or gone
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.send_message("closing", reason=reason)
        with suppress(OSError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.close(code)
