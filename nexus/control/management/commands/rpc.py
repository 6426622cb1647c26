"""`nexus rpc`: use a server's pool from a terminal or a script, over its JSON-RPC."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import CommandParser

from nexus.client import (
    BIND_HOST,
    DEFAULT_PORT,
    CallFailed,
    ClientError,
    DetectionResult,
    NexusClient,
    NotReached,
    StreamMessage,
    detect_server,
    discover_token_ports,
)
from nexus.client.discovery import LAST_PORT, PROBE_SECONDS
from nexus.client.methods import SEND_SECONDS
from nexus.control.config import ControlSettings
from nexus.control.operations.runs import MOST_LISTED
from nexus.core.cli import Parser, one_line, positive, text_of
from nexus.core.config import CoreSettings
from nexus.core.instance import running
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import whole_number
from nexus.core.progress import at_work
from nexus.core.verbs import Verb, VerbsCommand, VerbsParser

EXIT_CODES = """exit codes:
  0  done; standard output has JSON
  1  refused or failed; stderr says why
  2  the command line is wrong"""
PAGE = 200
AGENT, REQUEST = "Its agent_id.", "The request_id of the message."


def _wrong(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    parser.exit(2, f"Error: {message}. See --help.\n")


class RpcVerbParser(Parser):
    error = _wrong


class RpcParser(VerbsParser):
    error = _wrong


def verb(
    name: str,
    help: str,
    act: Callable[[Mapping[str, Any]], int],
    arguments: Callable[[CommandParser], None],
    *examples: str,
) -> Verb:
    """Return a verb of the command with its own arguments and `--port`."""

    def with_port(parser: CommandParser) -> None:
        arguments(parser)
        parser.add_argument(
            "--port", type=_port_number, help="The server's JSON-RPC port. [the newest token's whose server runs]"
        )

    return Verb(name, help, act, with_port, examples, exit_codes=EXIT_CODES)


def _path(text: str) -> Path:
    """Parse a path relative to this process's directory; the server's own directory is another one."""
    if not text:
        raise argparse.ArgumentTypeError("use a path")
    try:
        return Path(text).absolute()
    except OSError:  # this directory is gone
        raise argparse.ArgumentTypeError("use an absolute path") from None


def _seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("use a number of seconds up to 86400")
    return seconds


def _tokens(text: str) -> int:
    """Parse a number of tokens."""
    tokens = whole_number(text)
    if tokens is None:
        raise argparse.ArgumentTypeError("use a whole number")
    return tokens


def _port_number(text: str) -> int:
    """Parse a port number."""
    port = whole_number(text, LAST_PORT)
    if not port:
        raise argparse.ArgumentTypeError(f"use a port from 1 to {LAST_PORT}")
    return port


def nothing(parser: CommandParser) -> None:
    """Add no arguments."""


def add_agent(parser: CommandParser) -> None:
    parser.add_argument("agent_id", metavar="ID", help=AGENT)


def add_request(parser: CommandParser) -> None:
    add_agent(parser)
    parser.add_argument("request_id", metavar="REQUEST", help=REQUEST)


def add_create(parser: CommandParser) -> None:
    parser.add_argument(
        "agent_id", metavar="ID", help="Its name. If it begins with a dot, the agent ends with the server."
    )
    parser.add_argument("--preset", help="worker, sandboxed or trusted. [sandboxed]")
    parser.add_argument("--cwd", type=_path, metavar="DIR", help="Its directory. [its parent's, or the server's]")
    parser.add_argument(
        "--write-path",
        type=_path,
        action="append",
        default=[],
        metavar="PATH",
        help="It may write this path and everything below it; repeatable.",
    )
    parser.add_argument("--model", metavar="RUNNER", help="The runner of its turns; `nexus runners` lists them.")
    parser.add_argument(
        "--disable-tool",
        action="append",
        default=[],
        metavar="TOOL",
        help="It and its children do not get this tool, such as run; repeatable.",
    )
    parser.add_argument("--parent", metavar="ID", help="The agent whose ceiling bounds it, and which may direct it.")
    parser.add_argument(
        "--wake-on",
        action="extend",
        type=lambda text: text.split(","),
        default=[],
        metavar="WHAT",
        help="What starts a turn by itself: mail, handoff, task or topic; repeatable, or separated by commas.",
    )
    parser.add_argument(
        "--wake-tokens",
        type=_tokens,
        metavar="TOKENS",
        help="The most tokens that such turns use in a day; 0: no limit. [its parent's, or a million]",
    )
    parser.add_argument(
        "--worktree",
        action=argparse.BooleanOptionalAction,
        help="Give it a git worktree of its own, a clone with a branch. [if it may write, without --write-path, and "
        "there is a commit to clone]",
    )
    parser.add_argument("--message", metavar="TEXT", help="Its first message; - reads it from standard input.")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="How long to wait for its answer. [no wait: the message is only queued]",
    )


def add_send(parser: CommandParser) -> None:
    add_agent(parser)
    parser.add_argument("content", metavar="TEXT", help="The message; - reads it from standard input.")
    parser.add_argument(
        "--request-id", metavar="REQUEST", help="A name for the message, to cancel it or to send it again."
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=SEND_SECONDS,
        metavar="SECONDS",
        help="How long to wait for the answer. [300]",
    )


def add_messages(parser: CommandParser) -> None:
    add_agent(parser)
    parser.add_argument("--limit", type=positive, default=PAGE, help="How many of the newest entries. [200]")
    parser.add_argument(
        "--follow", action="store_true", help="Print each new entry as a line of JSON, until the agent ends."
    )


LONGEST_ERROR = 2_000  # characters


class Command(VerbsCommand):
    """The verbs of `nexus rpc`."""

    parser_class = RpcParser
    verb_parser_class = RpcVerbParser
    prints_json = True
    help = "Create agents in a server's pool, send them work, watch them and end them. Without a verb it lists them."
    examples = f"""examples:
  nexus serve --control --rpc-port
  nexus rpc create writer --cwd ~/project --write-path ~/project/notes
  nexus rpc send writer "Summarise what is in docs."
  nexus rpc messages writer --follow
  nexus rpc destroy writer

server:
  --port selects it; by default that of the newest token in --home whose server runs, or {DEFAULT_PORT}.
  NEXUS_RPC_TOKEN may hold the token, if its file cannot be read. Without both, NEXUS3's are used: NEXUS3_API_KEY and
  ~/.nexus3.

{EXIT_CODES}"""

    def verbs(self) -> Sequence[Verb]:
        return (
            verb("list", "List the agents.", self.list, nothing, "nexus rpc list"),
            verb("create", "Create an agent.", self.create, add_create,
                 "nexus rpc create worker-1 --preset trusted --cwd ~/project",
                 'nexus rpc create .scout --message "Read README.md." --timeout 60'),
            verb("destroy", "End an agent.", self.destroy, add_agent, "nexus rpc destroy worker-1"),
            verb("send", "Send an agent a message, and print its answer.", self.send, add_send,
                 'nexus rpc send worker-1 "Hello!"',
                 "git diff | nexus rpc send worker-1 - --request-id review-7 --timeout 600"),
            verb("cancel", "Stop a message's turn.", self.cancel, add_request, "nexus rpc cancel worker-1 review-7"),
            verb("status", "Show an agent's context size and token use.", self.status, add_agent,
                 "nexus rpc status worker-1"),
            verb("messages", "Show an agent's transcript, or follow it.", self.messages, add_messages,
                 "nexus rpc messages worker-1 --limit 20", "nexus rpc messages worker-1 --follow"),
            verb("compact", "Compact an agent's context.", self.compact, add_agent,
                 "nexus rpc compact worker-1"),
            verb("detect", "Say whether a server listens on the port; exit code 1 if none does.", self.detect, nothing,
                 "nexus rpc detect --port 8765"),
            verb("shutdown", "End the server.", self.shutdown, nothing, "nexus rpc shutdown"),
        )  # fmt: skip

    def run(self, **options: Any) -> None:
        try:
            sys.exit(self.act(options))
        except (ClientError, NexusError) as error:
            advice = _advice(options) if isinstance(error, NotReached) else ""
            self.stderr.write(f"Error: {advice or one_line(_spelled(error), LONGEST_ERROR)}")
            sys.exit(1)

    def list(self, options: Mapping[str, Any]) -> int:
        """Print the agents of the pool, with what each does; the rows of JSON-RPC say nothing of that."""

        async def list_agents(client: NexusClient) -> dict[str, Any]:
            agents, states = await client.list_agents(), {}
            try:
                for outcome in ("queued", "running", "stuck"):
                    found = await client.call("list_runs", {"outcome": outcome, "limit": MOST_LISTED})
                    states.update({run["agent_id"]: outcome for run in found["runs"] if run["ended_at"] is None})
            except CallFailed:  # a server of NEXUS3, which knows no runs
                return {"agents": agents}
            return {"agents": [{**row, "state": states.get(row["agent_id"], "idle")} for row in agents]}

        return self._ask(options, list_agents)

    def create(self, options: Mapping[str, Any]) -> int:
        """Create an agent."""
        message = None if options["message"] is None else text_of(options["message"])
        seconds = None if message is None else options["timeout"]

        async def created(client: NexusClient) -> dict[str, Any]:
            made = await client.create_agent(
                options["agent_id"],
                preset=options["preset"],
                cwd=options["cwd"],
                allowed_write_paths=options["write_path"] or None,
                model=options["model"],
                disable_tools=options["disable_tool"] or None,
                parent_agent_id=options["parent"],
                wake_on=options["wake_on"] or None,
                wake_tokens=options["wake_tokens"],
                worktree=options["worktree"],
                initial_message=message,
                wait_for_initial_response=seconds is not None,
                timeout=seconds or 0,
            )
            if seconds is not None and "response" not in made:
                raise _unanswered(seconds, made["initial_request_id"], f"{made['agent_id']} is there. ")
            return made

        return self._ask(options, created)

    def destroy(self, options: Mapping[str, Any]) -> int:
        """End an agent; exit code 1 if there is none of this name."""
        return self._ask(options, lambda client: client.destroy_agent(options["agent_id"]), done="success")

    def send(self, options: Mapping[str, Any]) -> int:
        """Send a message and print the answer."""
        content = text_of(options["content"])

        async def sent(client: NexusClient) -> dict[str, Any]:
            answer = await client.for_agent(options["agent_id"]).send(
                content, options["request_id"], timeout=options["timeout"]
            )
            if "status" in answer:
                raise _unanswered(options["timeout"], answer["request_id"])
            return answer

        return self._ask(options, sent)

    def cancel(self, options: Mapping[str, Any]) -> int:
        """Stop a turn; exit code 1 if there is nothing to stop."""
        return self._ask(
            options,
            lambda client: client.for_agent(options["agent_id"]).cancel(options["request_id"]),
            done="cancelled",
        )

    def status(self, options: Mapping[str, Any]) -> int:
        """Print an agent's context size."""

        async def asked(client: NexusClient) -> dict[str, Any]:
            agent = client.for_agent(options["agent_id"])
            tokens, context = await asyncio.gather(agent.get_tokens(), agent.get_context())
            return {"agent_id": options["agent_id"], "tokens": tokens, "context": context}

        return self._ask(options, asked)

    def messages(self, options: Mapping[str, Any]) -> int:
        """Print the newest messages; with --follow also each new one, one a line, until the agent ends."""

        async def newest(client: NexusClient) -> dict[str, Any]:
            agent = client.for_agent(options["agent_id"])
            total = (await agent.get_messages(limit=1))["total"]
            first = max(total - options["limit"], 0)
            page = await agent.get_messages(first, options["limit"])
            messages = page["messages"]
            while page["messages"] and first + len(messages) < total:  # long ones come in several pages
                page = await agent.get_messages(first + len(messages), options["limit"])
                messages += page["messages"]
            return {**page, "offset": first, "messages": messages}

        return asyncio.run(self._follow(options)) if options["follow"] else self._ask(options, newest)

    async def _follow(self, options: Mapping[str, Any]) -> int:
        entries: deque[StreamMessage] = deque(maxlen=options["limit"])  # not printed yet
        begun = False
        async with _client(options) as client:
            async for message in client.for_agent(options["agent_id"]).stream():
                begun = begun or message.event == "state"  # the state comes after all earlier entries
                if message.event == "entry":
                    entries.append(message)
                while begun and entries:
                    self.stdout.write(json.dumps(entries.popleft().data))
                    self.stdout.flush()
        return 0

    def compact(self, options: Mapping[str, Any]) -> int:
        """Compact an agent's context and print how many tokens this freed."""
        return self._ask(options, lambda client: client.for_agent(options["agent_id"]).compact())

    def detect(self, options: Mapping[str, Any]) -> int:
        """Print what listens on the port."""
        port, host = _server(options)
        result = asyncio.run(detect_server(port, host))
        self._print({"port": port, "result": result})
        if result is DetectionResult.NEXUS_SERVER:
            return 0
        raise NotReached(f"No server with a pool answers on port {port}.")

    def shutdown(self, options: Mapping[str, Any]) -> int:
        """Ask the server to end."""
        return self._ask(options, lambda client: client.shutdown_server(), done="success")

    def _ask(
        self,
        options: Mapping[str, Any],
        call: Callable[[NexusClient], Awaitable[Mapping[str, Any]]],
        *,
        done: str | None = None,
    ) -> int:
        """Call the server and print the result; exit code 1 if its field `done` is false. Raises ClientError."""

        async def asked() -> Mapping[str, Any]:
            async with _client(options) as client:
                return await call(client)

        with at_work(self.stderr, options["verb"]):
            result = asyncio.run(asked())
        self._print(result)
        return 0 if done is None or result[done] else 1

    def _print(self, data: Mapping[str, Any]) -> int:
        self.stdout.write(json.dumps(data, indent=2, default=_plain))
        return 0


def _unanswered(seconds: float, request_id: str, made: str = "") -> ClientError:
    return ClientError(
        f"{made}No answer came within {seconds:g} s, or before the server ended. Send the same text with --request-id "
        f"{request_id} to keep waiting, or cancel it."
    )


def _port(options: Mapping[str, Any]) -> int:
    """Return the port of the server that the options name."""
    if given := options["port"] or ControlSettings.current().rpc_port:
        return int(given)
    home = CoreSettings.current().home
    files, holder = discover_token_ports(home), running(home)
    if holder is not None and holder.port in files:
        return holder.port
    newest_first = sorted(files, key=lambda port: _written(files[port]), reverse=True)
    return next(filter(_is_used, newest_first), next(iter(newest_first), DEFAULT_PORT))


def _is_used(port: int) -> bool:
    """Return whether something listens on a port: a server that was killed leaves its token."""
    try:
        with socket.create_connection((BIND_HOST, port), PROBE_SECONDS):
            return True
    except OSError:
        return False


def _server(options: Mapping[str, Any]) -> tuple[int, str]:
    """Return the port and the address of the server that the options name; this home's may listen on another
    address."""
    port, holder = _port(options), running(CoreSettings.current().home)
    return port, holder.address if holder and holder.port == port else BIND_HOST


def _client(options: Mapping[str, Any]) -> NexusClient:
    return NexusClient(*_server(options), nexus_dir=CoreSettings.current().home)


def _advice(options: Mapping[str, Any]) -> str:
    """Return advice for the case that this home's server is meant and runs no pool, or was killed; empty otherwise."""
    home = CoreSettings.current().home
    given = options["port"] or ControlSettings.current().rpc_port or None
    holder, files = running(home), discover_token_ports(home)
    if holder is None:
        if given or not files:
            return ""
        names = ", ".join(path.name for path in files.values())
        return f"No server of this home runs: a killed one left {names}. Start one with `nexus serve --control`."
    if given not in (None, holder.port) or holder.port in files:
        return ""
    return (
        f"The hub of this home, process {holder.pid} on {holder.host}:{holder.port}, runs no pool: stop it, and start "
        "it again with `nexus serve --control`."
    )


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # its server has ended meanwhile
        return 0


def _spelled(error: ClientError | NexusError) -> str:
    return f"{error.code}: {error.message}" if isinstance(error, NexusError) else str(error)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else str(value)
