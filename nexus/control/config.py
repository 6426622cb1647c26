"""The settings of this app."""

from __future__ import annotations

from pathlib import Path

from nexus.core.config import Settings, section, setting

DEFAULT_PORT = 8765  # of JSON-RPC, if it has its own port


@section
class ControlSettings(Settings):
    """Settings of the pool: the agents that Nexus runs itself."""

    control: bool = setting(False, "Run a pool of agents, and serve JSON-RPC at /rpc.", live=False, bare="true")
    rpc_port: int = setting(
        0,
        "A separate port on this machine for JSON-RPC; 0: only the server's port. Without a number: 8765.",
        minimum=0,
        maximum=65_535,
        live=False,
        bare=str(DEFAULT_PORT),
    )
    rpc_beyond_loopback: bool = setting(
        False,
        "Also answer JSON-RPC, and its streams, to agents' keys from other machines. The token of the run counts on "
        "this machine only.",
        live=False,
        bare="true",
    )
    rpc_token_copy: Path | None = setting(
        None,
        "A second directory that gets the file with the run's token, for clients that look there. Without a directory: "
        "~/.nexus3, where those of NEXUS3 do.",
        live=False,
        bare="~/.nexus3",
    )
    pool_agents: int = setting(
        100,
        "The most agents in the pool. An agent creates at most half of them, with all below it, and agents leave a "
        "tenth to operators.",
        minimum=1,
        maximum=10_000,
    )
    pool_turns: int = setting(
        8,
        "The most turns at once. A tenth, and one of four or more, is for what operators send, and as much is left by "
        "what any one agent sent. Beside each turn may run one more: a turn that its agent started and may wait for.",
        minimum=1,
        maximum=1_000,
    )
    pool_queue: int = setting(
        100,
        "The most turns that wait for one agent. A tenth, and one of four or more, is for what operators send.",
        minimum=1,
        maximum=10_000,
    )
    pool_idle_seconds: int = setting(
        0, "An agent that is idle for this long (s) ends; 0: it stays.", minimum=0, maximum=31_536_000
    )
    pool_stop_seconds: int = setting(
        10, "How long (s) turns may continue when the server ends, before they are interrupted.", minimum=0, maximum=600
    )
    pool_wake_depth: int = setting(
        10,
        "The most turns in a chain, in which each turn was caused by something that the former turn sent.",
        minimum=1,
    )
    pool_wakes_a_minute: int = setting(20, "The most woken turns of an agent within a minute.", minimum=1)
    pool_wake_tokens: int = setting(
        1_000_000,
        "The most tokens that an agent's woken turns use in a day, unless it has its own budget; 0: no limit.",
        minimum=0,
    )
    pool_sandbox: str = setting(
        "preferred",
        "required: agents' processes start only in a sandbox (bubblewrap). preferred: without one they start "
        "unsandboxed.",
        choices=("preferred", "required"),
    )
    pool_bus_calls: str = setting(
        "allowed",
        "allowed: an agent's process may call the hub's tools within its rights on the bus. asked: an operator is "
        "asked first.",
        choices=("allowed", "asked"),
    )
    pool_question_seconds: int = setting(
        1_800,
        "A question that no operator answered within this time (s) counts as refused.",
        minimum=1,
        maximum=604_800,
    )
    retention_ended_questions_keep_days: int = setting(
        90,
        "Agents' questions to operators that ended longer ago than this (days) may be pruned.",
        minimum=0,
        maximum=36_500,
    )
    pool_hang_seconds: int = setting(
        30,
        "A worker without a sign of life for this long (s) is ended and replaced.",
        minimum=1,
        maximum=3_600,
    )
    retention_ended_pool_agents_keep_days: int = setting(
        90,
        "Agents of the pool that ended longer ago than this (days) may be pruned, with their transcripts.",
        minimum=0,
        maximum=36_500,
    )
    retention_compacted_pool_entries_keep_days: int = setting(
        90,
        "Entries of a pool agent's transcript that were compacted longer ago than this (days) may be pruned.",
        minimum=0,
        maximum=36_500,
    )
    retention_ended_pool_turns_keep_days: int = setting(
        90,
        "Turns of living agents that ended longer ago than this (days) may be pruned if they have no entries left; "
        "the last 20 of each agent stay.",
        minimum=0,
        maximum=36_500,
    )
