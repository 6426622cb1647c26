"""Models that do what they are told, as published agents call them, on one port of this machine.

Anthropic's messages, OpenAI's chat completions and responses, and Gemini's generateContent. What they answer stands in
the message that the agent was sent, behind MARK, as a JSON list of rounds: a round is a list of calls `[tool, input]`,
made at once, or a text, which ends the turn; HANG never answers. Whatever else an agent asks (titles, summaries) is
answered with "ok".
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

MARK = "PLAY:"
HANG = "HANG"
NOT_YET = "unsupported call"
PAUSE_SECONDS = 0.25
Said = tuple[str, str]  # user, told (by the client), said, called or answered, and the text
Round = str | Sequence[Sequence[Any]]


def play(*rounds: Round) -> str:
    """A message that lets the model do this, round by round."""
    return MARK + json.dumps(rounds)


def plan(said: Sequence[Said]) -> Round:
    """What the model does next: the round behind those that it made since the message."""
    at = max((n for n, (who, text) in enumerate(said) if who == "user" and MARK in text), default=None)
    if at is None or any(who == "user" and not text.lstrip().startswith("<") for who, text in said[at + 1 :]):
        return "ok"
    rounds = json.JSONDecoder().raw_decode(said[at][1].rpartition(MARK)[2])[0]
    # Codex starts the bus beside the turn: a call of a tool that is not there yet is made again.
    early = sum(who == "answered" and NOT_YET in text for who, text in said[at:])
    if early and NOT_YET in said[-1][1]:
        time.sleep(PAUSE_SECONDS)
    made = sum(who == "called" for who, _ in said[at:]) - early
    return rounds[made] if made < len(rounds) else "ok"


def text_of(content: Any) -> str:
    """A content's text, of one part or many."""
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content, dict):
        return str(content.get("text") or text_of(content.get("content")))
    return str(content or "")


def of_anthropic(body: Mapping[str, Any]) -> Iterator[Said]:
    for message in body["messages"]:
        parts = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
        kinds = {part.get("type") for part in parts}
        if message["role"] == "assistant":
            yield ("called" if "tool_use" in kinds else "said"), text_of(parts)
        elif "tool_result" in kinds:
            yield "answered", text_of(parts)
        elif message["role"] == "user":
            # What the person wrote is one part of it; an agent puts reminders beside it.
            marked = [part for part in parts if MARK in text_of(part)]
            yield "user", text_of(marked[-1] if marked else parts)


def of_chat(body: Mapping[str, Any]) -> Iterator[Said]:
    for message in body["messages"]:
        if message["role"] == "assistant":
            yield ("called" if message.get("tool_calls") else "said"), text_of(message.get("content"))
        elif message["role"] == "tool":
            yield "answered", text_of(message["content"])
        elif message["role"] == "user":
            yield "user", text_of(message["content"])


def of_responses(body: Mapping[str, Any]) -> Iterator[Said]:
    before = ""
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            if before != "called":  # calls made at once are one round
                yield "called", ""
            before = "called"
            continue
        before = kind
        if kind.endswith("_output"):
            yield "answered", text_of(item.get("output"))
        elif kind == "message":
            yield {"user": "user", "assistant": "said"}.get(item["role"], "told"), text_of(item["content"])


def of_gemini(body: Mapping[str, Any]) -> Iterator[Said]:
    for content in body["contents"]:
        parts = content.get("parts", [])
        if content.get("role") == "model":
            yield ("called" if any("functionCall" in part for part in parts) else "said"), ""
        elif any("functionResponse" in part for part in parts):
            yield "answered", json.dumps(parts)
        else:
            yield "user", text_of(parts)


class Provider(BaseHTTPRequestHandler):
    """All of them; `asked` holds what each request said, `hanging` is set when one hangs, until `over`."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[list[Said]]] = []
    models: ClassVar[set[str]] = set()  # those that were asked for
    hanging: ClassVar[threading.Event] = threading.Event()
    over: ClassVar[threading.Event] = threading.Event()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": "fake", "object": "model", "type": "model"}], "models": []})

    def do_HEAD(self) -> None:
        self._json({})

    def do_POST(self) -> None:
        body = json.loads(self._body() or b"{}")
        path = self.path.partition("?")[0]
        for end, said, answer in (
            ("/chat/completions", of_chat, self._chat),
            ("/messages", of_anthropic, self._anthropic),
            ("/responses", of_responses, self._responses),
            ("enerateContent", of_gemini, self._gemini),
        ):
            if path.endswith(end):
                heard = list(said(body))
                Provider.asked.append(heard)
                Provider.models.add(str(body.get("model") or path))
                todo = plan(heard)
                if todo == HANG:
                    Provider.hanging.set()
                    Provider.over.wait(600)
                    todo = "late"
                words, calls = (todo, []) if isinstance(todo, str) else ("", list(todo))
                try:
                    return answer(body, words, calls)
                except ConnectionError:
                    return None  # who asked is gone
        return self._json({"input_tokens": 10})

    def _body(self) -> bytes:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        match self.headers.get("Content-Encoding"):
            case "gzip":
                raw = gzip.decompress(raw)
            case "zstd":
                raw = subprocess.run(["zstd", "-dc"], input=raw, capture_output=True, check=True).stdout
        return raw

    def _json(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _events(self, *events: Any) -> None:
        """Server-sent events; those with a `type` by its name."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.close_connection = True

    def _chat(self, body: Mapping[str, Any], words: str, calls: list[Any]) -> None:
        tools = [
            {"index": n, "id": f"call_{len(Provider.asked)}_{n}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(given)}}
            for n, (name, given) in enumerate(calls)
        ]  # fmt: skip
        base = {"id": "chatcmpl", "created": 0, "model": body.get("model", "fake")}
        reason = "tool_calls" if calls else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        message = {"role": "assistant", "content": words or None, **({"tool_calls": tools} if tools else {})}
        if not body.get("stream"):
            choice = {"index": 0, "finish_reason": reason, "message": message}
            return self._json({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = {**base, "object": "chat.completion.chunk"}
        return self._events(
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**chunk, "choices": [], "usage": usage},
            "[DONE]",
        )

    def _anthropic(self, body: Mapping[str, Any], words: str, calls: list[Any]) -> None:
        content: list[dict[str, Any]] = [{"type": "text", "text": words}] if words else []
        content += [
            {"type": "tool_use", "id": f"toolu_{len(Provider.asked)}_{n}", "name": name, "input": given}
            for n, (name, given) in enumerate(calls)
        ]
        usage = {"input_tokens": 10, "output_tokens": 5}
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        base = {"id": f"msg_{len(Provider.asked)}", "type": "message", "role": "assistant", "model": body["model"]}
        if not body.get("stream"):
            return self._json({**base, **stop, "content": content, "usage": usage})
        events: list[dict[str, Any]] = [{"type": "message_start", "message": {**base, "content": [], "usage": usage}}]
        for n, block in enumerate(content):
            if block["type"] == "text":
                begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": words}
            else:
                begun = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events += [
                {"type": "content_block_start", "index": n, "content_block": begun},
                {"type": "content_block_delta", "index": n, "delta": delta},
                {"type": "content_block_stop", "index": n},
            ]
        return self._events(*events, {"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"})

    def _responses(self, body: Mapping[str, Any], words: str, calls: list[Any]) -> None:
        items: list[dict[str, Any]] = []
        if words:
            part = {"type": "output_text", "text": words, "annotations": []}
            items.append({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]})
        for n, (name, given) in enumerate(calls):
            space, _, tool = name.rpartition("/")
            call = {"call_id": f"call_{len(Provider.asked)}_{n}", "name": tool, "status": "completed"}
            call |= {"namespace": space} if space else {}
            if isinstance(given, str):
                items.append({"type": "custom_tool_call", "id": f"c{n}", "input": given, **call})
            else:
                items.append({"type": "function_call", "id": f"c{n}", "arguments": json.dumps(given), **call})
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        whole = {"id": "r", "object": "response", "created_at": 0, "model": body.get("model"), "output": items}
        done = {**whole, "status": "completed", "usage": usage}
        self._events(
            {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
            *(
                {"type": f"response.output_item.{when}", "output_index": n, "item": item}
                for n, item in enumerate(items)
                for when in ("added", "done")
            ),
            {"type": "response.completed", "response": done},
        )

    def _gemini(self, body: Mapping[str, Any], words: str, calls: list[Any]) -> None:
        wanted = body.get("generationConfig", {})
        if schema := wanted.get("responseJsonSchema") or wanted.get("responseSchema"):
            words, calls = json.dumps(_filled(schema)), []  # a question of the client's own, such as for a model
        parts: list[dict[str, Any]] = [{"text": words}] if words else []
        parts += [{"functionCall": {"name": name, "args": given}} for name, given in calls]
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}
        if "stream" in self.path:
            self._events(answer)
        else:
            self._json(answer)


def _filled(schema: Mapping[str, Any]) -> Any:
    """Something that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    kinds = {"string": "x", "number": 50, "integer": 50, "boolean": True, "array": []}
    fields = {name: _filled(each) for name, each in schema.get("properties", {}).items()}
    return kinds.get(str(schema.get("type")).lower(), fields)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of an agent that was killed while it was connected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve() -> tuple[Server, str]:
    """A server, at work; and its address."""
    server = Server(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"
