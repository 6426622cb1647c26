"""A model in our own loop: call the model, then the tools that it asks for, until it answers without a call.

The transcript becomes the model's messages, which are extended during the turn. Every answer and every result is in the
transcript before the next step, so a crash loses at most one step.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from ssl import SSLContext
from typing import Any

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
    UserError,
)
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as Asked
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from nexus.control import faults
from nexus.control.agents import transcript
from nexus.control.agents.transcript import estimate
from nexus.control.agents.turns import Closing, Ended
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import Entry, Role, TurnStatus
from nexus.control.permissions.prices import MILLIONTHS, MOST, Cost
from nexus.control.runners import contexts, recording, telemetry, traffic
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.runners.tools import catalog, servers
from nexus.control.runners_file import Model
from nexus.core.clock import now
from nexus.core.waiting import READERS, WRITERS, in_thread

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a retry
AWAITED_PAUSE = 2.0  # the longest, if somebody waits for the turn
CATEGORIES = (  # of errors without an HTTP status, such as those in the middle of an answer
    (ModelQuotaExceededError, FaultKind.QUOTA),
    (ModelAuthenticationError, FaultKind.KEY),
    (ModelRateLimitError, FaultKind.OVERLOADED),
    (ModelUnavailableError, FaultKind.OVERLOADED),
    (ModelServerError, FaultKind.FAILING),
    (ModelConnectionError, FaultKind.UNREACHABLE),
    (httpx2.HTTPError, FaultKind.UNREACHABLE),
)
MOST_CALLS = 64  # of tools, in one answer
LONGEST_ARGUMENTS = 2 * 1024 * 1024  # characters
LONGEST_ID = 255  # characters
PRICES = "the prices of genai-prices"  # which pydantic-ai comes with
LONGEST_QUOTE = 300  # characters of a provider's error


async def take(runner: Model, scene: Scene) -> Ended:
    """Run a turn. A failed turn reports its tokens, too. When cancelled, drop the current request at once."""
    key = None if runner.api_key_env is None else os.environ.get(runner.api_key_env)
    if runner.api_key_env is not None and not key:
        raise RunnerFailed(
            f"the server has no {runner.api_key_env} in its environment, which runner {runner.name} needs",
            Fault(FaultKind.KEY),
        )
    log = traffic.Log(scene.agent.agent_id, key or "", run=scene.turn.pk)
    transport = recording.Recording(httpx2.AsyncHTTPTransport(verify=_tls()), log)
    async with httpx2.AsyncClient(transport=transport, headers={"accept-encoding": "identity"}) as client:
        turn = _Turn(runner, scene, telemetry.traced(_model(runner, key, client, log)), log)
        try:
            async with servers.served(runner, scene) as further:
                turn.tools = {**further, **turn.tools}
                return await turn.taken()
        except RunnerFailed as failed:
            return replace(turn.ended(TurnStatus.FAILED, why=log.struck(str(failed))), fault=failed.fault)


@cache
def _tls() -> SSLContext:
    """Return the TLS context. It is cached, because creating it takes longer than the rest of preparing a request."""
    return httpx2.create_ssl_context()


def _model(runner: Model, key: str | None, client: httpx2.AsyncClient, log: traffic.Log) -> Asked:
    """Return the model of a runner. Raises RunnerFailed for an unknown provider, or one whose package is not
    installed."""
    provider, _, name = runner.model.partition(":")
    if runner.base_url is not None:
        service = OpenAICompatibleProvider(provider, base_url=runner.base_url, api_key=key, http_client=client)
        return OpenAIChatModel(name, provider=service)

    def made(named: str) -> Provider[Any]:
        known: Callable[..., Provider[Any]] = infer_provider_class(named)  # each provider has its own parameters
        return known(http_client=client, **({"api_key": key} if key else {}))

    try:
        return infer_model(runner.model, made)
    except (UserError, ValueError, TypeError, ImportError) as error:
        why = log.excerpt(str(error), LONGEST_QUOTE)
        raise RunnerFailed(f"runner {runner.name} cannot use {runner.model}: {why}") from None


class _Turn:
    """One turn: its conversation and its tokens so far."""

    def __init__(self, runner: Model, scene: Scene, model: Asked, log: traffic.Log) -> None:
        self.runner, self.scene, self.model, self.log = runner, scene, model, log
        self.tools = catalog.tools(scene.agent.permissions)
        self.talk = Conversation()
        self.instructions = ""
        self.iterations = self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.cost: Cost | None = Cost(0, "USD", PRICES)  # None: it is unknown

    async def taken(self) -> Ended:
        """Run the turn to its end. Raises RunnerFailed."""
        entries = await self._entries()
        self.talk = conversation(entries)
        own = catalog.instructions(self.scene.agent)
        parts = [own, await self.scene.instructions(), *summaries(entries)]
        self.instructions = "\n\n".join(filter(None, parts))
        text = ""
        while self.iterations < self.runner.max_iterations:
            self.iterations += 1
            response = await self._asked()
            text = _clean("".join(part.content for part in response.parts if isinstance(part, TextPart)))
            called = [part for part in response.parts if isinstance(part, ToolCallPart)][:MOST_CALLS]
            calls = self._calls(called)
            if not text and not calls:
                raise RunnerFailed("the model answered nothing")
            if not calls:
                return replace(self.ended(TurnStatus.DONE, answer=text), closing=Closing(text))
            await self.scene.say(Role.ASSISTANT, text, meta={"tool_calls": [vars(call) for call in calls]})
            self.talk.said(text, calls)
            for call, part in zip(calls, called, strict=True):
                result = await self._result(call, part)
                rulings = {"by_rule": "; ".join(self.scene.rulings)} if self.scene.rulings else None
                self.scene.rulings.clear()
                await self.scene.say(Role.TOOL, result, tool_call_id=call.id, meta=rulings)
                self.talk.answered(call.id, result)
        return self.ended(TurnStatus.DONE, answer=text or "[stopped at the limit of iterations]", halted=True)

    def ended(
        self, status: TurnStatus, *, answer: str | None = None, why: str | None = None, halted: bool = False
    ) -> Ended:
        """Return the turn's end, with its tokens."""
        used = (self.input_tokens, self.output_tokens, self.cached_tokens)
        return Ended(status, answer, why, self.iterations, halted, *used, cost=self.cost if any(used) else None)

    async def _entries(self) -> list[Entry]:
        """Return the entries of the transcript; compact it first if it nearly fills the context."""
        agent = self.scene.agent
        is_full = partial(contexts.is_nearly_full, agent)
        fold = partial(transcript.compact, agent, agent.agent_id, self.runner.available_tokens)
        while await in_thread(READERS, is_full):
            if await in_thread(WRITERS, fold) is None:
                break
        return await in_thread(READERS, partial(transcript.context, agent))

    def _calls(self, parts: list[ToolCallPart]) -> list[ToolCall]:
        """Return the calls of an answer, each with a unique id."""
        taken: dict[str, ToolCall] = {}
        for part in parts:
            call_id = _clean(part.tool_call_id)
            if not 0 < len(call_id) <= LONGEST_ID or call_id in taken:
                call_id = f"call_{secrets.token_hex(8)}"
            taken[call_id] = ToolCall(call_id, _clean(part.tool_name)[:LONGEST_ID], _arguments(part) or {})
        return list(taken.values())

    async def _result(self, call: ToolCall, part: ToolCallPart) -> str:
        if _arguments(part) is None:
            return "Error: the arguments are no JSON object; call again with one."
        return _clean(await catalog.call(self.scene, self.tools, call.name, call.arguments))

    async def _asked(self) -> ModelResponse:
        """Return the model's answer; a failed request is retried, within limits, if a short wait may help. Raises
        RunnerFailed."""
        messages, seconds = self._messages(), self.runner.stall_seconds
        is_awaited = self.scene.turn.is_awaited(now())
        longest = AWAITED_PAUSE if is_awaited else LONGEST_PAUSE
        for attempt in range(self.runner.retries + 1):
            try:
                response = await self._once(messages)
            except TimeoutError:
                why = f"the model said nothing for {seconds} second{'s' * (seconds != 1)}"
                fault = Fault(FaultKind.UNREACHABLE)
                if is_awaited:
                    raise RunnerFailed(why, fault) from None
            except ModelContextWindowExceededError:
                raise RunnerFailed("the model's context is full: compact the agent, or lower context_tokens") from None
            except (ModelAPIError, httpx2.HTTPError) as error:
                why, found = self._provider_error(error), _fault(error)
                if found is None or found.kind not in faults.PASSING or (found.retry_after or 0) > longest:
                    raise RunnerFailed(why, found) from None
                fault = found
            except recording.TooLong as error:
                raise RunnerFailed(f"the model sent {error}") from None
            except (AgentRunError, ValueError, LookupError, TypeError, AttributeError) as error:
                raise RunnerFailed(
                    f"the model's answer cannot be read: {self.log.excerpt(str(error), LONGEST_QUOTE)}"
                ) from None
            else:
                self.input_tokens += response.usage.input_tokens
                self.output_tokens += response.usage.output_tokens
                self.cached_tokens += response.usage.cache_read_tokens
                self.cost = await asyncio.to_thread(_total, self.cost, response)  # reads the prices once
                self.scene.draft.cost = self.cost
                self.scene.draft.used(self.input_tokens, self.output_tokens, self.cached_tokens)
                return response
            if attempt < self.runner.retries:
                pause = fault.retry_after
                await asyncio.sleep(min(FIRST_PAUSE * 2**attempt, longest) if pause is None else pause)
        again = f", {self.runner.retries + 1} times" if self.runner.retries else ""
        raise RunnerFailed(why + again, fault)

    def _messages(self) -> list[ModelMessage]:
        """Return the messages to send: as many as fit. Raises RunnerFailed."""
        taken = transcript.estimate(self.instructions) + sum(tool.tokens for tool in self.tools.values())
        messages = self.talk.fitted(self.runner.available_tokens - taken)
        if messages is None:
            raise RunnerFailed(
                "the message, with the instructions and tools, does not fit the context_tokens of its runner"
            )
        return messages

    async def _once(self, messages: list[ModelMessage]) -> ModelResponse:
        """Make one request. Raises TimeoutError if nothing arrives for too long, and the libraries' errors."""
        loop, stall = asyncio.get_running_loop(), self.runner.stall_seconds
        self.scene.draft.restart()  # drop the text of a failed attempt
        async with asyncio.timeout(stall) as patience:
            async with model_request_stream(
                self.model,
                messages,
                model_settings=ModelSettings(max_tokens=self.runner.reply_tokens, max_retries=0),
                model_request_parameters=self._parameters(),
            ) as stream:
                async for event in stream:
                    patience.reschedule(loop.time() + stall)
                    self.scene.draft.add(_clean(_written(event)))
                return stream.get()

    def _provider_error(self, error: Exception) -> str:
        status = f"HTTP {error.status_code}" if isinstance(error, ModelHTTPError) else type(error).__name__
        body = _clean(str(getattr(error, "body", None) or error))
        return f"the model's provider answered {status}: {self.log.excerpt(body, LONGEST_QUOTE)}"

    def _parameters(self) -> ModelRequestParameters:
        defined = [
            ToolDefinition(
                name=tool.name, parameters_json_schema=tool.schema, description=tool.description, strict=False
            )
            for tool in self.tools.values()
        ]
        return ModelRequestParameters(
            function_tools=defined, instruction_parts=[InstructionPart(content=self.instructions)]
        )


def _total(before: Cost | None, response: ModelResponse) -> Cost | None:
    """Return the cost after one more response; None if the price of one is unknown."""
    if before is None:
        return None
    try:
        price = response.cost().total_price
    except (LookupError, ValueError):
        return None
    return replace(before, millionths=min(before.millionths + round(price * MILLIONTHS), MOST))


def _written(event: ModelResponseStreamEvent) -> str:
    """Return the text in an event of a stream."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
    return ""


def _fault(error: Exception) -> Fault | None:
    """Return the provider's fault behind an error; None if the request itself is wrong."""
    kind = next((kind for category, kind in CATEGORIES if isinstance(error, category)), None)
    if isinstance(error, ModelHTTPError) and kind is not FaultKind.QUOTA:
        kind = faults.of_status(error.status_code)
    return None if kind is None else Fault(kind, getattr(error, "retry_after", None))


def _arguments(part: ToolCallPart) -> dict[str, Any] | None:
    """Return a call's arguments; None if they are not a JSON object."""
    given: Any = part.args or {}
    if isinstance(given, str):
        try:
            given = json.loads(given) if len(given) <= LONGEST_ARGUMENTS else None
        except (ValueError, RecursionError):
            return None
    try:
        return _cleaned(given) if isinstance(given, dict) else None
    except RecursionError:
        return None


def _cleaned(value: Any) -> Any:
    """Return a JSON value whose texts the store accepts."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, Mapping):
        return {_clean(name): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value


def _clean(text: str) -> str:
    """Return a text that the store accepts: without NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


UNANSWERED = "Error: the turn was interrupted before this call was answered; it may have been done."
LEFT_OUT = "[left out to make room; call again if you need it]"


@dataclass(frozen=True)
class ToolCall:
    """A tool call, as a transcript keeps it in its `meta`."""

    id: str
    name: str
    arguments: dict[str, Any]


class Conversation:
    """Messages in the order that models require: every call is answered before anything else is said."""

    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self.open: dict[str, str] = {}  # names of calls without an answer, by id

    def heard(self, text: str) -> None:
        """Add a text that somebody sent to the agent."""
        self._close()
        self._request(UserPromptPart(text))

    def said(self, text: str, calls: Sequence[ToolCall] = ()) -> None:
        """Add the model's answer, or its calls of tools."""
        self._close()
        spoken = [TextPart(text)] if text else []
        called = [ToolCallPart(call.name, call.arguments, call.id) for call in calls]
        if spoken or called:
            self.messages.append(ModelResponse([*spoken, *called]))
        self.open = {call.id: call.name for call in calls}

    def answered(self, call_id: str, result: str) -> None:
        """Add a tool's result; a result without an open call is ignored."""
        name = self.open.pop(call_id, None)
        if name is not None:
            self._request(ToolReturnPart(name, result, call_id))

    def fitted(self, tokens: int) -> list[ModelMessage] | None:
        """Return the messages within this number of tokens, leaving out the oldest tool results first; None if that is
        not enough."""
        fitting, over = list(self.messages), sum(map(_size, self.messages)) - tokens
        for number, message in enumerate(fitting):
            if over <= 0:
                break
            if isinstance(message, ModelRequest):
                shorter = replace(message, parts=[_left_out(part) for part in message.parts])
                over -= _size(message) - _size(shorter)
                fitting[number] = shorter
        return fitting if over <= 0 else None

    def _close(self) -> None:
        for call_id in list(self.open):
            self.answered(call_id, UNANSWERED)

    def _request(self, part: UserPromptPart | ToolReturnPart) -> None:
        """Add a part to one request for everything between two answers: some models require the two to alternate."""
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelRequest):
            self.messages[-1] = replace(last, parts=[*last.parts, part])
        else:
            self.messages.append(ModelRequest([part]))


def conversation(entries: Iterable[Entry]) -> Conversation:
    """Return the conversation in an agent's transcript. A call that a crash left without a result gets one that says
    so."""
    result = Conversation()
    for entry in entries:
        meta = entry.meta or {}
        match entry.role:
            case Role.USER:
                by = meta.get("source_agent_id")
                result.heard(f"[from agent {by}]\n{entry.content}" if by else entry.content)
            case Role.ASSISTANT:
                result.said(entry.content, [_call(each) for each in meta.get("tool_calls", [])])
            case Role.TOOL:
                result.answered(entry.tool_call_id or "", entry.content)
    return result


def summaries(entries: Iterable[Entry]) -> list[str]:
    """Return the summaries that compaction made."""
    return [entry.content for entry in entries if entry.role == Role.SYSTEM]


def _call(kept: dict[str, Any]) -> ToolCall:
    arguments = kept.get("arguments")
    return ToolCall(
        str(kept["id"]), str(kept["name"]).replace(".", "-"), arguments if isinstance(arguments, dict) else {}
    )


def _left_out(part: Any) -> Any:
    if isinstance(part, ToolReturnPart) and len(str(part.content)) > len(LEFT_OUT):
        return replace(part, content=LEFT_OUT)
    return part


def _size(message: ModelMessage) -> int:
    return sum(
        estimate(str(part.args) if isinstance(part, ToolCallPart) else str(getattr(part, "content", "")))
        for part in message.parts
    )
