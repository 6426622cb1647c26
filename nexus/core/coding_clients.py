"""The coding clients that Nexus knows, one entry for each: its files, its hooks, its tools.

Standard library alone: hooks read it at each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from nexus.core.harness_events import Activity, HarnessEvent

START, MESSAGE = HarnessEvent.SESSION_START, HarnessEvent.USER_MESSAGE
SPAWN, COMPLETE = HarnessEvent.SUBAGENT_SPAWN, HarnessEvent.SUBAGENT_COMPLETE
BEFORE, AFTER = HarnessEvent.PRE_TOOL_USE, HarnessEvent.POST_TOOL_USE
END, COMPACT = HarnessEvent.SESSION_END, HarnessEvent.CONTEXT_COMPACT

SESSION_START, PROMPT, TOOL_USED, STOP = "SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"
EVENTS = (SESSION_START, PROMPT, TOOL_USED, STOP)  # of mail
WAKE = "Wake"  # no event of a client: its agent is idle, and something came
# The classes of tools in the catalog of planning's agents.
FILES = ("file_creation", "file_modification", "file_deletion", "partial_file_edit", "structured_document_edit")
SHELL = ("shell_command_exec", "subprocess_spawn", "interactive_shell_session")

APP_DATA = "{app_data}"  # the system's directory for a user's application data
# Paths that a client has elsewhere if a variable names a directory.
MOVED = (
    ("~/.config", "XDG_CONFIG_HOME", ""),
    ("~/.codex", "CODEX_HOME", ""),
    ("~/.claude", "CLAUDE_CONFIG_DIR", ""),
    ("~/.claude.json", "CLAUDE_CONFIG_DIR", "/.claude.json"),
)
LOCAL_OR_HTTP = ("stdio", "http")
Format = Literal["json", "toml"]


class Waking(NamedTuple):
    """A client's hook that runs in the background while the agent is idle, and wakes it."""

    fields: Mapping[str, Any]  # of its entry
    events: tuple[str, ...] = (STOP,)  # at which it starts
    where: Mapping[str, str] = {}  # the variables, and how each begins, of a session that it can wake
    # How the turn begins: when the hook ends, by a line in the client's queue, or by a message to the session's socket.
    way: Literal["exit", "queue", "socket"] = "exit"


class Hooks(NamedTuple):
    """How a client calls `nexus hook`."""

    user_file: str
    project_file: str
    points: Mapping[str, HarnessEvent]  # by the client's name of a point of a session
    names: tuple[str, ...] = EVENTS  # the client's, in the order of EVENTS
    hears_before: bool = False  # whether its agent hears what is said before a tool is used
    activities: Mapping[str, Activity] = {}  # by the client's name of a point that tells what its agent does
    since: Mapping[str, tuple[int, ...]] = {}  # by point, the first version that has it: an older one refuses the file
    most_seconds: Mapping[str, int] = {}  # by point, that the client gives a hook, where that is less than usual
    waking: Waking | None = None  # None: the client has no hook that can wake its agent

    def file(self, scope: str) -> str:
        """Return the path of the hooks of a scope, `user` or `project`."""
        return self.user_file if scope == "user" else self.project_file


class Tools(NamedTuple):
    """A client's names of tools. A class without a tool of its own has the nearest one: anything else goes through a
    shell."""

    ours: str  # for the server `nexus`, with the operation in place of {}
    by_class: Mapping[str, tuple[str, ...]]
    shell: str  # that runs a line of shell

    @property
    def editing(self) -> tuple[str, ...]:
        """Those that change files; a shell that does is none of them."""
        return tuple(dict.fromkeys(name for each in FILES for name in self.by_class[each]))


class Subagents(NamedTuple):
    """Where a client looks for agents, and its names of the models of the two tiers."""

    project: str  # relative to the project
    user: str  # relative to the user's home
    suffix: str = ".md"
    models: Mapping[str, str] | None = None  # None: an agent uses the model of the session that starts it


class Client(NamedTuple):
    """One client's conventions; paths are relative to the project, or start with `~` or APP_DATA."""

    title: str
    program: str | None = None  # its program
    directory: str | None = None  # a directory that the client creates when it is started
    servers: str = "mcpServers"  # the object that holds the entries
    user_file: str | None = None
    project_file: str | None = None
    other_files: tuple[str, ...] = ()  # which it reads, too: one of them is used if it is there
    format: Format = "json"
    types: tuple[str, str] | None = None  # names of the transport in an entry: local, remote
    joined: bool = False  # whether `command` includes the arguments
    environment: str = "env"  # the field of a local server's variables
    passed: str | None = None  # the field that names the variables which a local server gets; None: it gets all
    url: str | None = "url"  # the field of a remote server; None if only local ones are possible
    headers: str = "headers"
    variable: str | None = None  # how a header refers to an environment variable
    bearer_variable: str | None = None  # the field that names the variable of a bearer token
    skill: str | None = None  # the path of Nexus's skill, if not the usual one
    guide: str = "AGENTS.md"  # the file of the project that its agent reads first
    first: str = "Start it again."  # what a person must do before the client reads the entries
    mark: str | None = None  # a variable of its shells alone
    # Its empty input line in a terminal and, as one character, the rule below it: a regular expression that begins with
    # the prompt. None if nobody tried it.
    empty_line: str | None = None
    # How its agent is woken while it is idle, or what must happen instead.
    woken: str = "While it is idle nothing wakes its agent: it sees what came when its person types something."
    hooks: Hooks | None = None
    plugin: Hooks | None = None  # files of our plugin, which calls `nexus hook` as Claude Code does
    tools: Tools | None = None
    subagents: Subagents | None = None

    @property
    def can_name_a_variable(self) -> bool:
        """Whether a remote server's key may come from the environment."""
        return self.variable is not None or self.bearer_variable is not None


# Claude Code, and perhaps Codex, start a session again after a compaction: `source` says so.
_CLAUDE = {
    "SessionStart": START,
    "UserPromptSubmit": MESSAGE,
    "SubagentStart": SPAWN,
    "SubagentStop": COMPLETE,
    "PreToolUse": BEFORE,
    "PostToolUse": AFTER,
}
_CLAUDE_TELLS = {
    "Notification": Activity.ASKS,
    "StopFailure": Activity.OUT_OF_QUOTA,
    "PreCompact": Activity.COMPACTING,
    "SessionEnd": Activity.GONE,
}
# Any other harness: plain text.
TEXT = Hooks("", "", _CLAUDE, hears_before=True)

CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        "Claude Code",
        program="claude",
        directory="~/.claude",
        user_file="~/.claude.json",
        project_file=".mcp.json",
        types=LOCAL_OR_HTTP,
        variable="${%s}",
        skill=".claude/skills/nexus/SKILL.md",
        guide="CLAUDE.md",
        first="Start `claude` here again and allow the server nexus.",
        mark="CLAUDECODE",
        empty_line=r'❯( Try ".*")? ─',
        woken="A hook wakes its agent while it is idle.",
        hooks=Hooks(
            "~/.claude/settings.json",
            ".claude/settings.local.json",  # not in the repository: the command's path is of this machine
            {**_CLAUDE, "PostToolUseFailure": AFTER, "SessionEnd": END},
            hears_before=True,
            activities=_CLAUDE_TELLS,
            since={"StopFailure": (2, 1, 78)},
            waking=Waking(
                {"asyncRewake": True, "timeout": 2_147_483},  # seconds: the most that its timer takes
                (SESSION_START, STOP),
                # Elsewhere it would hold the client up: in `claude -p`, and in versions that know no asyncRewake.
                {"CLAUDE_CODE_ENTRYPOINT": "cli", "AI_AGENT": "claude-code"},
            ),
        ),
        tools=Tools(
            "mcp__nexus__{}",
            {
                "file_creation": ("Edit", "Write"),
                "file_modification": ("Edit", "Write", "MultiEdit"),
                "file_deletion": ("Write",),
                "partial_file_edit": ("Edit", "MultiEdit"),
                "structured_document_edit": ("NotebookEdit",),
                "shell_command_exec": ("Bash", "PowerShell"),
                "subprocess_spawn": ("Bash", "PowerShell", "Monitor"),
                "interactive_shell_session": ("BashOutput", "KillShell", "TaskOutput", "TaskStop"),
            },
            "Bash",
        ),
        subagents=Subagents(".claude/agents", ".claude/agents", models={"high": "opus", "standard": "sonnet"}),
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        directory=f"{APP_DATA}/Claude",
        user_file=f"{APP_DATA}/Claude/claude_desktop_config.json",
        url=None,
        first="Quit and start Claude Desktop.",
    ),
    "cursor": Client(
        "Cursor",
        program="cursor",
        directory="~/.cursor",
        user_file="~/.cursor/mcp.json",
        project_file=".cursor/mcp.json",
        variable="${env:%s}",
        first="Switch nexus on in Cursor's settings, under MCP.",
        mark="CURSOR_AGENT",
        hooks=Hooks(
            "~/.cursor/hooks.json",
            ".cursor/hooks.json",
            {
                "sessionStart": START,
                "beforeSubmitPrompt": MESSAGE,
                "subagentStart": SPAWN,
                "subagentStop": COMPLETE,
                "preToolUse": BEFORE,
                "postToolUse": AFTER,
                "postToolUseFailure": AFTER,
                "preCompact": COMPACT,
                "sessionEnd": END,
            },
            ("sessionStart", "beforeSubmitPrompt", "postToolUse", "stop"),
            activities={"preCompact": Activity.COMPACTING, "sessionEnd": Activity.GONE},
        ),
        tools=Tools(
            "MCP:{}",
            {**dict.fromkeys(FILES, ("Write",)), "file_deletion": ("Delete",), **dict.fromkeys(SHELL, ("Shell",))},
            "Shell",
        ),
        subagents=Subagents(".cursor/agents", ".cursor/agents"),
    ),
    "vscode": Client(
        "VS Code",
        program="code",
        directory=f"{APP_DATA}/Code/User",
        servers="servers",
        user_file=f"{APP_DATA}/Code/User/mcp.json",
        project_file=".vscode/mcp.json",
        types=LOCAL_OR_HTTP,
        variable="${env:%s}",
        first="Open .vscode/mcp.json in VS Code and start nexus there.",
    ),
    "windsurf": Client(
        "Windsurf",
        program="windsurf",
        directory="~/.codeium/windsurf",
        user_file="~/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        variable="${env:%s}",
        first="Refresh the MCP servers in Windsurf's settings.",
    ),
    "codex": Client(
        "Codex",
        program="codex",
        directory="~/.codex",
        servers="mcp_servers",
        user_file="~/.codex/config.toml",
        project_file=".codex/config.toml",
        format="toml",
        headers="http_headers",
        bearer_variable="bearer_token_env_var",
        passed="env_vars",
        first="Start `codex` here again, trust the project, and review the hooks with /hooks.",
        mark="CODEX_THREAD_ID",
        empty_line="› (Ask Codex to do anything|Ask a follow-up question)",
        woken="A hook wakes its agent while it is idle, within ten seconds where Codex has no background server.",
        hooks=Hooks(
            "~/.codex/hooks.json",
            ".codex/hooks.json",
            {**_CLAUDE, "PostCompact": COMPACT, "SessionEnd": END},
            hears_before=True,
            activities={
                "PermissionRequest": Activity.ASKS,
                "PreCompact": Activity.COMPACTING,
                "Interrupt": Activity.IDLE,
                "SessionEnd": Activity.GONE,
            },
            most_seconds={"Interrupt": 3, "SessionEnd": 3},  # it warns of more at each start
            waking=Waking({"async": True, "timeout": 2_147_483}, way="queue"),  # seconds
        ),
        tools=Tools(  # its hooks report every shell tool under one name
            "mcp__nexus__{}", {**dict.fromkeys(FILES, ("apply_patch",)), **dict.fromkeys(SHELL, ("Bash",))}, "Bash"
        ),
        subagents=Subagents(".codex/agents", ".codex/agents", suffix=".toml"),
    ),
    "gemini": Client(
        "Gemini CLI",
        program="gemini",
        directory="~/.gemini",
        user_file="~/.gemini/settings.json",
        project_file=".gemini/settings.json",
        url="httpUrl",
        variable="${%s}",
        first="Start `gemini` here again and trust the folder.",
        mark="GEMINI_CLI",
        empty_line="> Type your message or @path/to/file( ▀)?",
        hooks=Hooks(
            "~/.gemini/settings.json",
            ".gemini/settings.json",
            {
                "SessionStart": START,
                "BeforeAgent": MESSAGE,
                "BeforeTool": BEFORE,
                "AfterTool": AFTER,
                "PreCompress": COMPACT,
                "SessionEnd": END,
            },
            ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent"),
            activities={
                "Notification": Activity.ASKS,
                "PreCompress": Activity.COMPACTING,
                "SessionEnd": Activity.GONE,
            },
        ),
        woken="While it is idle only `nexus attach`, in tmux or kitty, wakes its agent.",
        tools=Tools(
            "mcp_nexus_{}",
            {
                **dict.fromkeys(FILES, ("write_file", "replace")),
                **dict.fromkeys(SHELL, ("run_shell_command",)),
            },
            "run_shell_command",
        ),
        subagents=Subagents(".gemini/agents", ".gemini/agents", models={"high": "pro", "standard": "flash"}),
    ),
    "qwen": Client(
        "Qwen Code",
        program="qwen",
        directory="~/.qwen",
        user_file="~/.qwen/settings.json",
        project_file=".qwen/settings.json",
        url="httpUrl",
        variable="${%s}",
        first="Start `qwen` here again and approve the server nexus.",
        mark="QWEN_CODE",
        empty_line="> Type your message or @path/to/file ─",
        woken="A hook wakes its agent while it is idle, unless its setting agents.crossSessionInbound forbids that.",
        hooks=Hooks(
            "~/.qwen/settings.json",
            ".qwen/settings.json",
            {**_CLAUDE, "PostToolUseFailure": AFTER, "PostCompact": COMPACT, "SessionEnd": END},
            activities=_CLAUDE_TELLS,
            waking=Waking(
                {"async": True, "timeout": 2_147_483_000},  # milliseconds, as it reads a thousand and more
                (SESSION_START, STOP),
                {"QWEN_CODE_MESSAGING_SOCKET": "/"},  # of its session, where its settings allow messages
                way="socket",
            ),
        ),
        tools=Tools(
            "mcp__nexus__{}",
            {
                **dict.fromkeys(FILES, ("write_file", "edit")),
                "structured_document_edit": ("notebook_edit",),
                **dict.fromkeys(SHELL, ("run_shell_command",)),
            },
            "run_shell_command",
        ),
    ),
    "opencode": Client(
        "opencode",
        program="opencode",
        directory="~/.config/opencode",
        servers="mcp",
        user_file="~/.config/opencode/opencode.jsonc",
        project_file="opencode.json",
        other_files=(
            *("opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
            *("~/.config/opencode/opencode.json", "~/.config/opencode/config.json"),
        ),
        types=("local", "remote"),
        joined=True,
        environment="environment",
        variable="{env:%s}",
        first="Start `opencode` here again.",
        woken="A plugin wakes its agent while it is idle, after its first turn.",
        mark="OPENCODE",
        plugin=Hooks(
            "~/.config/opencode/plugins/nexus.js",
            ".opencode/plugins/nexus.js",
            {"SessionStart": START, "UserPromptSubmit": MESSAGE, "PreToolUse": BEFORE, "PostToolUse": AFTER},
            hears_before=True,
            activities={
                "Notification": Activity.ASKS,
                "StopFailure": Activity.OUT_OF_QUOTA,
                "Interrupt": Activity.IDLE,
                "SessionEnd": Activity.GONE,
            },
            waking=Waking({}),
        ),
        tools=Tools(
            "nexus_{}",
            {**dict.fromkeys(FILES, ("edit", "write", "apply_patch")), **dict.fromkeys(SHELL, ("bash",))},
            "bash",
        ),
        subagents=Subagents(".opencode/agents", ".config/opencode/agents"),
    ),
    "cline": Client(
        "Cline",
        program="cline",
        directory="~/.cline",
        user_file="~/.cline/data/settings/cline_mcp_settings.json",
        types=("stdio", "streamableHttp"),
        empty_line=r"❯ (What can I do for you\?|Ask anything\.\.\.) ─",
        woken="While it is idle only `nexus attach`, in tmux or kitty, wakes its agent.",
    ),
    "copilot": Client(
        "Copilot CLI",
        program="copilot",
        directory="~/.copilot",
        user_file="~/.copilot/mcp-config.json",
        project_file=".github/mcp.json",
        types=("local", "http"),
        first="Start `copilot` here again and trust the folder.",
        empty_line="❯ ─|┃ ╹▀",  # the second in kitty
        woken="Only `nexus attach`, in tmux or kitty, wakes its idle agent, or `nexus wait`, which it runs itself.",
    ),
    "auggie": Client(
        "Auggie",
        program="auggie",
        directory="~/.augment",
        user_file="~/.augment/settings.json",
        project_file=".augment/settings.json",
        types=LOCAL_OR_HTTP,
        first="Start `auggie` here again.",
    ),
    "zed": Client(
        "Zed",
        program="zed",
        directory="~/.config/zed",
        servers="context_servers",
        user_file="~/.config/zed/settings.json",
        project_file=".zed/settings.json",
    ),
    "json": Client("any other client", types=LOCAL_OR_HTTP),
}
HOOKED = {name: client.hooks for name, client in CLIENTS.items() if client.hooks}
PLUGGED = {name: client.plugin for name, client in CLIENTS.items() if client.plugin}
HARNESSES = {**HOOKED, **PLUGGED, "text": TEXT}  # whoever calls `nexus hook`
TOOLS = {name: client.tools for name, client in CLIENTS.items() if client.tools}
SUBAGENTS = {name: client.subagents for name, client in CLIENTS.items() if client.subagents}


def edits_files(client: str, tool: str) -> bool:
    """Return whether a client's tool of that name changes files; an unknown client is treated as Claude Code."""
    return tool in TOOLS.get(client, TOOLS["claude-code"]).editing
