"""The arguments of `nexus rpc`: each verb's parameters and their types."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import CommandParser

from nexus.client import parse_port_spec
from nexus.client.discovery import LAST_PORT, PROBE_SECONDS
from nexus.client.methods import SEND_SECONDS
from nexus.core.cli import positive
from nexus.core.operations.parameters import whole_number
from nexus.core.verbs import Verb, VerbParser, VerbsParser

EXIT_CODES = """exit codes:
  0  done; standard output has JSON
  1  refused or failed; stderr says why
  2  the command line is wrong"""
PAGE = 200
AGENT, REQUEST = "Its agent_id.", "The request_id of the message."


def _wrong(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    parser.exit(2, f"Error: {message}. See --help.\n")


class RpcVerbParser(VerbParser):
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
            "--port", type=_port_number, help="The server's JSON-RPC port. [the port of the newest token]"
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


def _ports(text: str) -> list[int]:
    try:
        return parse_port_spec(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None


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
    parser.add_argument("--model", metavar="RUNNER", help="The runner of its turns; `nexus rpc runners` lists them.")
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
        action="append",
        default=[],
        metavar="WHAT",
        help="What starts a turn by itself: mail, handoff, task or topic; repeatable.",
    )
    parser.add_argument(
        "--wake-tokens",
        type=_tokens,
        metavar="TOKENS",
        help="The most tokens that such turns use in a day; 0: no limit. [its parent's, or pool_wake_tokens]",
    )
    parser.add_argument("--worktree", action="store_true", help="Give it a git worktree of its own, with a branch.")
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


def add_logs(parser: CommandParser) -> None:
    add_agent(parser)
    parser.add_argument("--limit", type=positive, default=20, help="How many of the newest lines. [20]")


def add_ports(parser: CommandParser) -> None:
    parser.add_argument("--ports", type=_ports, metavar="SPEC", help="Such as 8765,9000-9005. [those with a token]")
    wait = f"How long to wait for each; use more on a busy machine. [{PROBE_SECONDS:g}]"
    parser.add_argument("--timeout", type=_seconds, default=PROBE_SECONDS, metavar="SECONDS", help=wait)
