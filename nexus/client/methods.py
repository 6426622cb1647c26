"""The methods of a pool in Python, the same for every way of calling them (docs/reference/json-rpc.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]
SEND_SECONDS = 300.0
CLONE_SECONDS = 240.0  # to clone a large repository


class Methods(ABC):
    """A class that calls methods by name."""

    @abstractmethod
    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """Call a method of the pool or of one agent and return its result; it may take `seconds` more than others."""


class PoolMethods(Methods):
    """The methods of the pool."""

    async def create_agent(
        self,
        agent_id: str | None = None,
        preset: str | None = None,
        cwd: str | Path | None = None,
        allowed_write_paths: Sequence[str | Path] | None = None,
        model: str | None = None,
        disable_tools: Sequence[str] | None = None,
        parent_agent_id: str | None = None,
        initial_message: str | None = None,
        wait_for_initial_response: bool = False,
        *,
        wake_on: Sequence[str] | None = None,
        wake_tokens: int | None = None,
        worktree: bool | None = False,
        timeout: float = SEND_SECONDS,
    ) -> Result:
        """Create an agent: {agent_id, url}, and initial_request_id and initial_status with a message, or its response.

        `wake_on` lists what starts a turn by itself, such as "mail"; `wake_tokens` limits the tokens of those turns in
        a day; `worktree` gives it its own git worktree, with None if it may write, has no write paths and there is a
        commit. `timeout` (s) limits the wait for the response: after it the turn goes on, and the result is the same as
        without waiting.
        """
        params = given(
            agent_id=agent_id,
            preset=preset,
            cwd=_spelled(cwd),
            allowed_write_paths=None if allowed_write_paths is None else [str(path) for path in allowed_write_paths],
            model=model,
            disable_tools=None if disable_tools is None else list(disable_tools),
            parent_agent_id=parent_agent_id,
            wake_on=None if wake_on is None else list(wake_on),
            wake_tokens=wake_tokens,
            initial_message=initial_message,
            wait_for_initial_response=wait_for_initial_response or None,
            timeout_seconds=timeout if wait_for_initial_response else None,
        )
        seconds = timeout if wait_for_initial_response else 0
        if worktree is not False:  # which is the default of every server
            params["worktree"], seconds = worktree, seconds + CLONE_SECONDS
        return await self.call("create_agent", params, seconds=seconds)

    async def destroy_agent(self, agent_id: str) -> Result:
        """End an agent: {success, agent_id}."""
        return await self.call("destroy_agent", {"agent_id": agent_id})

    async def shutdown_server(self) -> Result:
        """End the server: {success, message}."""
        return await self.call("shutdown_server", {})


class AgentMethods(Methods):
    """The methods of one agent."""

    async def send(
        self,
        content: str,
        request_id: str | None = None,
        source: str | None = None,
        source_agent_id: str | None = None,
        *,
        timeout: float = SEND_SECONDS,
    ) -> Result:
        """Send a message and wait for the answer: {content, request_id, halted_at_iteration_limit}.

        If it is cancelled meanwhile: {cancelled, request_id}. After `timeout` seconds the turn goes on, and the result
        is {request_id, status}; call again with the same request_id and content to keep waiting.
        """
        params = given(
            content=content,
            request_id=request_id,
            source=source,
            source_agent_id=source_agent_id,
            timeout_seconds=timeout,
        )
        return await self.call("send", params, of_agent=True, seconds=timeout)

    async def cancel(self, request_id: str) -> Result:
        """Stop a turn: {cancelled, request_id}, with a reason if there was none to stop."""
        return await self.call("cancel", {"request_id": request_id}, of_agent=True)

    async def get_tokens(self) -> Result:
        """Return the tokens of the context: {system, tools, messages, total, budget, available, remaining}."""
        return await self.call("get_tokens", {}, of_agent=True)

    async def get_context(self) -> Result:
        """Return the state of the context: {message_count, system_prompt, halted_at_iteration_limit, …}."""
        return await self.call("get_context", {}, of_agent=True)

    async def get_messages(self, offset: int = 0, limit: int = 200) -> Result:
        """Return a page of the transcript: {agent_id, total, offset, limit, messages}."""
        return await self.call("get_messages", {"offset": offset, "limit": limit}, of_agent=True)

    async def compact(self, force: bool = True) -> Result:
        """Compact the context: {compacted, tokens_before, tokens_after, tokens_saved} or {compacted, reason}."""
        return await self.call("compact", {"force": force}, of_agent=True)

    async def set_option(self, option: str, value: str | bool | None) -> Result:
        """Choose the mode, the model or another option of its sessions, None to leave it to the agent: {agent_id,
        chosen}."""
        return await self.call("set_option", {"option": option, "value": value}, of_agent=True)

    async def shutdown(self) -> Result:
        """Mark the agent as done: {success}."""
        return await self.call("shutdown", {}, of_agent=True)


def given(**params: Any) -> Result:
    """Return the parameters that are not None."""
    return {name: value for name, value in params.items() if value is not None}


def _spelled(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
