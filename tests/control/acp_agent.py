"""An agent that speaks the Agent Client Protocol, as real ones do; what it does in a turn, the prompt says.

A prompt is words: the first names a mode, the others are its arguments. Its answer is what came of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

if __name__ == "__main__":
    from pydantic import BaseModel
    from pydantic._internal import _fields

    # The protocol's models are made when they are used, and without their documentation: all of them, at each of many
    # starts, take longer than what the agent does.
    BaseModel.model_config["defer_build"] = True
    vars(_fields)["extract_docstrings_from_cls"] = lambda *_, **__: {}

import acp
from acp.schema import (
    AgentCapabilities,
    AuthEnvVar,
    AuthMethodAgent,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    ElicitationFormSessionMode,
    ElicitationSchema,
    EnvVarAuthMethod,
    PermissionOption,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectGroup,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    TerminalAuthMethod,
    ToolCallLocation,
    UnstructuredCommandInput,
    Usage,
    UsageUpdate,
)

OPTIONS = [
    PermissionOption(kind="allow_once", name="Allow", option_id="yes"),
    PermissionOption(kind="reject_once", name="Refuse", option_id="no"),
]


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that leads elsewhere is the answer."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Agent:
    """One agent with one session at a time; with --loads, it remembers sessions in its HOME.

    It is a program, or plays in the process of the tests (`acp_here.py`), with `out` as its stdout.
    """

    client: Any
    cancelled = signed_in = deep = False
    mode, model = "auto", "small"
    usage = Usage(input_tokens=7, output_tokens=3, total_tokens=10)

    def __init__(self, flags: Sequence[str], env: Mapping[str, str], out: asyncio.StreamWriter | None = None) -> None:
        self.flags, self.env, self.out = flags, env, out

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def shout(self, data: bytes) -> None:
        """Write all of it to stdout, past the protocol."""
        if self.out is not None:
            self.out.write(data)
            await self.out.drain()
            return
        os.set_blocking(1, True)  # the SDK made it one that does not block
        while data:
            data = data[os.write(1, data) :]

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        if "--old" in self.flags:
            return acp.InitializeResponse(protocol_version=0)
        resumes = SessionCapabilities(resume=SessionResumeCapabilities()) if "--resumes" in self.flags else None
        can = AgentCapabilities(load_session="--loads" in self.flags, session_capabilities=resumes)
        methods: list[Any] = [
            AuthMethodAgent(id="page", name="A page"),
            AuthMethodAgent(id="key", name="A key"),
            EnvVarAuthMethod(type="env_var", id="variable", name="A variable", vars=[AuthEnvVar(name="AGENT_KEY")]),
            TerminalAuthMethod(
                type="terminal", id="terminal", name="A terminal", args=["--sign-in"], env={"GREETED": "home"}
            ),
            TerminalAuthMethod(type="terminal", id="broken", name="Another", args=["--sign-in"]),
        ]
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=can,
            auth_methods=methods if "--signed-out" in self.flags else [],
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> acp.NewSessionResponse:
        if "--signed-out" in self.flags and not self.signed_in:
            raise acp.RequestError.auth_required({"details": "the key ran out"})
        self.cwd, self.servers, self.session = cwd, mcp_servers, f"session-{secrets.token_hex(4)}"
        known = [SessionMode(id=mode, name=mode) for mode in ("auto", "ask", "free")]
        modes = SessionModeState(current_mode_id=self.mode, available_modes=known)
        options = self.options() if "--options" in self.flags else None
        return acp.NewSessionResponse(session_id=self.session, modes=modes, config_options=options)

    def options(self) -> list[Any]:
        sizes = [SessionConfigSelectOption(value=size, name=size.title()) for size in ("small", "large")]
        groups = [SessionConfigSelectGroup(group="all", name="All", options=sizes)]
        return [
            SessionConfigOptionSelect(
                type="select", id="model", name="Model", category="model", current_value=self.model, options=groups
            ),
            SessionConfigOptionBoolean(type="boolean", id="deep", name="Deep", current_value=self.deep),
        ]

    async def set_config_option(self, config_id: str, session_id: str, value: Any, **_: Any) -> Any:
        setattr(self, config_id, value)
        return SetSessionConfigOptionResponse(config_options=self.options())

    async def authenticate(self, method_id: str, **_: Any) -> None:
        if method_id != "key" or self.env.get("TEST_KEY") != "k":
            raise acp.RequestError(-32_000, "that is no key", {"method": method_id})
        self.signed_in = True

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        self.mode = mode_id

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> None:
        if "--signed-out" in self.flags and not self.signed_in:
            raise acp.RequestError.auth_required()
        self.cwd, self.servers, self.session = cwd, mcp_servers, session_id
        await self.say("told again")
        await self.costs("2.5")

    async def resume_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> Any:
        self.cwd, self.servers, self.session = cwd, mcp_servers, session_id
        return ResumeSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled = True

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        self.told = said = prompt[0].text
        mode, *words = said.rpartition("Now:\n\n")[2].split()
        if mode == "fault":  # of its provider, with its kind; with a path before, it writes there before
            if words[0].startswith("/"):
                await self.client.write_text_file(session_id=self.session, path=words.pop(0), content="x")
            kind = words.pop(0)
            raise acp.RequestError(-32_603, "Internal error", {"details": " ".join(words), "errorKind": kind})
        try:
            stop = await getattr(self, f"do_{mode}")(*words)
        except acp.RequestError as error:
            await self.say(f"refused: {error} {json.dumps(error.data)}")
            stop = None
        if mode == "echo":  # no model answered
            return PromptResponse(stop_reason="end_turn")
        return PromptResponse(stop_reason=stop or "end_turn", usage=self.usage)

    async def say(self, text: str) -> None:
        await self.client.session_update(self.session, acp.update_agent_message_text(text))

    # What it does.

    async def do_echo(self, *words: str) -> None:
        await self.say(" ".join(words))

    async def do_hello(self) -> None:
        for text in ("Hel", "lo"):
            await self.say(text)

    async def do_clock(self) -> None:
        """The time at which it says this, and a pause, so that this is seen before its turn ends."""
        await self.say(f"{time.time()} ")
        await asyncio.sleep(0.5)

    async def do_leak(self) -> None:
        """Its key, a few characters at a time."""
        key = self.env["NEXUS_API_KEY"]
        for text in ("It is ", *(key[at : at + 5] for at in range(0, len(key), 5)), "."):
            await self.say(text)

    async def do_stop(self, reason: str) -> str:
        await self.say("as far as I came")
        return reason

    async def do_repeat(self) -> None:
        await self.say(self.told)

    async def do_mode(self) -> None:
        await self.say(self.mode)

    async def do_options(self) -> None:
        """What is set; then other settings, commands, and what no client knows."""
        await self.say(f"{self.mode} {self.model} {self.deep}")
        self.model = "large"
        goal = AvailableCommandInput(UnstructuredCommandInput(hint="goal"))
        command = AvailableCommand(name="plan", description="Make a plan", input=goal)
        for update in (
            CurrentModeUpdate(session_update="current_mode_update", current_mode_id="ask"),
            ConfigOptionUpdate(session_update="config_option_update", config_options=self.options()),
            AvailableCommandsUpdate(session_update="available_commands_update", available_commands=[command]),
        ):
            await self.client.session_update(self.session, update)
        for params in ({"update": {"sessionUpdate": "of_tomorrow", "x": 1}}, {"update": 7}, 5):
            await self.shout(
                json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"
            )

    async def costs(self, amount: str, currency: str = "USD") -> None:
        cost = Cost(amount=float(amount), currency=currency)
        update = UsageUpdate(session_update="usage_update", used=10, size=100, cost=cost)
        await self.client.session_update(self.session, update)

    async def do_cost(self, *amounts: str) -> None:
        """What its session has cost so far, and what it read from a cache."""
        for amount in amounts:
            await self.costs(*amount.split(":"))
        await self.say("spent")
        self.usage = Usage(input_tokens=7, output_tokens=3, cached_read_tokens=90, total_tokens=100)

    async def do_form(self) -> None:
        """What an operator filled in."""
        schema = {"properties": {"color": {"type": "string", "enum": ["red", "blue"]}}, "required": ["color"]}
        mode = ElicitationFormSessionMode(
            session_id=self.session, requested_schema=ElicitationSchema.model_validate(schema)
        )
        answer = await self.client.create_elicitation(message="Which one?", mode=mode)
        await self.say(f"{answer.action} {json.dumps(getattr(answer, 'content', None))}")

    async def do_session(self) -> None:
        await self.say(self.session)

    async def do_work(self) -> None:
        """Text, a plan, a tool with its result, one without, and more text."""
        await self.say("First I look.")
        await self.client.session_update(self.session, acp.update_plan([acp.plan_entry("look", status="in_progress")]))
        start = acp.start_tool_call("a", "Look", kind="read", status="pending", raw_input={"path": "x\x00"})
        await self.client.session_update(self.session, start)
        block = acp.tool_content(acp.text_block("it is \x00 there"))
        done = acp.update_tool_call("a", status="completed", content=[block])
        await self.client.session_update(self.session, done)
        await self.client.session_update(self.session, acp.start_tool_call("b", "Forget", kind="other"))
        await self.say("Then I say.")

    async def do_calls(self) -> None:
        for number in range(1_000):
            await self.client.session_update(self.session, acp.start_tool_call(str(number), "Again", kind="other"))
        while not self.cancelled:
            await asyncio.sleep(0.01)
        return "cancelled"  # type: ignore[return-value]

    async def do_read(self, path: str) -> None:
        await self.say((await self.client.read_text_file(session_id=self.session, path=path)).content)

    async def do_watch(self, path: str) -> None:
        """Read a file until that fails, then run a program; say what both were answered."""
        await self.client.session_update(self.session, acp.start_tool_call("w", "Watch", kind="read"))
        try:
            while True:
                await self.client.read_text_file(session_id=self.session, path=path)
        except acp.RequestError as error:
            await self.say(f"{error}; ")
        await self.do_run("true")

    async def do_write(self, path: str, content: str) -> None:
        await self.client.write_text_file(session_id=self.session, path=path, content=content)
        await self.say("written")

    async def do_edit(self, path: str, content: str) -> None:
        """Ask first, as most agents do; then write, whatever the answer."""
        await self.do_may("edit", path)
        await self.do_write(path, content)

    async def do_lose(self, path: str) -> None:
        """Write a file by itself, and tell of it."""
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text("lost")
        call = acp.start_tool_call("l", "Write", kind="edit", locations=[ToolCallLocation(path=path)])
        await self.client.session_update(self.session, call)
        await self.client.session_update(self.session, acp.update_tool_call("l", status="completed"))

    async def do_may(self, kind: Any, path: str = "") -> None:
        locations = [ToolCallLocation(path=path)] if path else None
        call = acp.schema.ToolCallUpdate(tool_call_id="c", title=f"To {kind}", kind=kind, locations=locations)
        asked = await self.client.request_permission(session_id=self.session, tool_call=call, options=OPTIONS)
        await self.say(f"{getattr(asked.outcome, 'option_id', 'cancelled')} ")

    async def do_run(self, *words: str) -> None:
        """A command in a terminal, with its whole output."""
        made = await self.client.create_terminal(session_id=self.session, command=words[0], args=list(words[1:]))
        here = {"session_id": self.session, "terminal_id": made.terminal_id}
        ended = await self.client.wait_for_terminal_exit(**here)
        output = await self.client.terminal_output(**here)
        await self.client.release_terminal(**here)
        await self.say(f"{ended.exit_code} {output.truncated} {output.output}")

    async def do_with(self, variable: str, cwd: str, *words: str) -> None:
        """A command in a terminal with a variable and a directory of its own."""
        name, _, value = variable.partition("=")
        env = [acp.schema.EnvVariable(name=name, value=value)]
        given = {"command": words[0], "args": list(words[1:]), "env": env, "cwd": cwd}
        made = await self.client.create_terminal(session_id=self.session, **given)
        ended = await self.client.wait_for_terminal_exit(session_id=self.session, terminal_id=made.terminal_id)
        await self.say(str(ended.exit_code))

    async def do_line(self, *words: str) -> None:
        """A line of a shell in a terminal, as some agents send it."""
        made = await self.client.create_terminal(session_id=self.session, command=" ".join(words))
        ended = await self.client.wait_for_terminal_exit(session_id=self.session, terminal_id=made.terminal_id)
        await self.say(str(ended.exit_code))

    async def do_linger(self, *words: str) -> None:
        """A command in a terminal that nobody ends."""
        await self.client.create_terminal(session_id=self.session, command=words[0], args=list(words[1:]))
        await self.say("begun")

    async def do_shell(self, *words: str) -> None:
        """A command of its own, past the protocol."""
        ran = subprocess.run(["sh", "-c", " ".join(words)], capture_output=True, text=True, check=False)
        await self.say(f"{ran.returncode} {ran.stdout}{ran.stderr}")

    async def do_bus(self, tool: str, *pairs: str) -> None:
        """A tool of the MCP server that it was offered."""
        from mcp.client.session import ClientSession  # a second that the other turns, a process each, can spare
        from mcp.client.stdio import StdioServerParameters, stdio_client

        server = self.servers[0]
        given = StdioServerParameters(command=server.command, args=server.args)
        async with stdio_client(given) as pipes, ClientSession(*pipes) as session:
            await session.initialize()
            result = await session.call_tool(tool, dict(pair.split("=", 1) for pair in pairs))
            block: Any = result.content[0]
            await self.say(block.text)

    async def do_hold(self) -> None:
        """A connection to the MCP server that it was offered, and no end."""
        server = self.servers[0]
        relay = await asyncio.create_subprocess_exec(server.command, *server.args, stdin=-1, stdout=-1)
        given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        assert relay.stdin is not None and relay.stdout is not None
        relay.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given}).encode() + b"\n"
        )
        await relay.stdout.readline()
        await self.do_stall()

    async def do_reach(self, *tries: str) -> None:
        """The hub over the network, past the protocol: `METHOD:PATH:WHO:FIELD`, as nobody or with the key that it was
        given; the status of each answer."""
        statuses = []
        for each in tries:
            method, path, who, field = each.split(":")
            headers = {"content-type": "application/json"}
            if who == "key":
                headers["authorization"] = f"Bearer {self.env['NEXUS_API_KEY']}"
            body = None if method == "GET" else json.dumps({field: "x"}).encode()
            asking = urllib.request.Request(self.env["NEXUS_URL"] + path, body, headers, method=method)
            try:
                with urllib.request.build_opener(NoRedirect).open(asking, timeout=60) as answer:
                    statuses.append(answer.status)
            except urllib.error.HTTPError as refused:
                statuses.append(refused.code)
        await self.say(json.dumps(statuses))

    async def do_environment(self) -> None:
        await self.say(json.dumps(dict(self.env)))

    async def do_servers(self) -> None:
        await self.say(
            json.dumps(
                [
                    each.model_dump(include={"name", "command", "args", "env"}, exclude_none=True)
                    for each in self.servers
                ]
            )
        )

    async def do_betray(self, variable: str) -> None:
        """What it was given, in pieces and as a tool's arguments."""
        value = self.env[variable]
        for piece in ("It is ", value[:7], value[7:], "."):
            await self.say(piece)
        start = acp.start_tool_call("a", "Look", kind="other", raw_input={"value": [value], value: json.dumps(value)})
        await self.client.session_update(self.session, start)

    # What it does wrong.

    async def do_stall(self) -> None:
        await self.say("I stall")
        await self.client.session_update(self.session, acp.start_tool_call("s", "Stall", kind="other"))
        await asyncio.Event().wait()

    async def do_ignore(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        await self.do_stall()

    async def do_die(self, code: str) -> None:
        os.write(2, f"the key is {self.env.get('TEST_SECRET')}\n".encode())
        os._exit(int(code))

    async def do_nonsense(self) -> None:
        while True:
            await self.shout(b"no JSON\n[1]\n" + b"[" * 50_000 + b"\n{}\n")
            await asyncio.sleep(0)

    async def do_twice(self) -> None:
        """Its answers to all requests so far, before its own: as they are, and as errors."""
        await self.say("once")
        for answer in ({"result": {"stopReason": "end_turn"}}, {"error": {"code": -32603, "message": "twice"}}):
            for number in range(20):
                await self.shout(json.dumps({"jsonrpc": "2.0", "id": number, **answer}).encode() + b"\n")

    async def do_endless(self) -> None:
        while True:
            await self.shout(b"x" * 65_536)

    async def do_flood(self) -> None:
        """As much text as it can."""
        while True:
            await self.say("y" * 60_000)

    async def do_plans(self) -> None:
        """Another plan, again and again."""
        number = 0
        while not self.cancelled:
            number += 1
            await self.client.session_update(self.session, acp.update_plan([acp.plan_entry(f"step {number}")]))

    async def do_noise(self) -> None:
        """Some megabytes on stderr, then an answer."""
        for _ in range(64):
            os.write(2, b"z" * 65_536)
        await self.say("still here")

    async def do_daemon(self, mark: str) -> None:
        """A process that leaves its group, its session and its parent."""
        leave = f"import os,time\n'{mark}'\nif os.fork(): os._exit(0)\nos.setsid()\nif not os.fork(): time.sleep(9e4)"
        subprocess.run([sys.executable, "-c", leave], check=False)
        await self.say("left one behind")

    async def do_forks(self, mark: str) -> None:
        """A crowd of daemons that are deaf to signals, and its own death among them."""
        deaf = f"import os,signal,time\n'{mark}'\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
        crowd = "for _ in range(40):\n  if not os.fork():\n    os.setsid()\n    time.sleep(9e4)"
        subprocess.run([sys.executable, "-c", deaf + crowd], check=False)
        os._exit(4)

    async def do_moan(self) -> None:
        """As much as it can on stderr, and no answer."""
        while True:
            os.write(2, b"z" * 65_536)
            await asyncio.sleep(0)

    async def do_greedy(self) -> None:
        """Everything at once: what the pipe holds, before an answer to the first can come."""
        params = {"sessionId": self.session, "toolCall": {"toolCallId": "c", "title": "Again"}, "options": []}
        ask = {"jsonrpc": "2.0", "method": "session/request_permission", "params": params}
        lines = [json.dumps({**ask, "id": number}, separators=(",", ":")) for number in range(10_000, 11_000)]
        await self.shout("\n".join([*lines, ""]).encode())
        await asyncio.Event().wait()


if __name__ == "__main__":
    if "--mute" in sys.argv:
        signal.pause()
    if "--sign-in" in sys.argv:
        print(f"Welcome {os.environ.get('GREETED', 'nobody')}. {sys.argv[1:]}")
        sys.exit(0 if "GREETED" in os.environ else 3)
    if "--fails" in sys.argv:
        sys.exit("I cannot start like this")
    asyncio.run(acp.run_agent(cast(Any, Agent(sys.argv, os.environ)), use_unstable_protocol=True))
