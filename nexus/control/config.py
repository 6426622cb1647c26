"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting

DEFAULT_PORT = 8765  # of JSON-RPC, if it has its own port


@section
class ControlSettings(Settings):
    """Settings of the pool: the agents that Nexus runs itself."""

    control: bool = setting(False, "Run a pool of agents, and serve JSON-RPC at /rpc.", live=False, bare="true")
    rpc_port: int = setting(
        0,
        "A port of its own on this machine for JSON-RPC; 0: the server's port alone. Without a number: 8765.",
        minimum=0,
        maximum=65_535,
        live=False,
        bare=str(DEFAULT_PORT),
    )
    pool_agents: int = setting(100, "Agents that the pool holds at most.", minimum=1, maximum=10_000)
    pool_turns: int = setting(
        8,
        "Turns that are taken at once; for each of them one more that its agent sent, and may stand still for.",
        minimum=1,
        maximum=1_000,
    )
    pool_queue: int = setting(100, "Turns that wait for one agent at most.", minimum=1, maximum=10_000)
    pool_idle_seconds: int = setting(
        0, "An agent with nothing to do for so long (s) ends; 0: it stays.", minimum=0, maximum=31_536_000
    )
    pool_stop_seconds: int = setting(
        10, "How long (s) turns may still take when the server ends; then they are interrupted.", minimum=0, maximum=600
    )
    pool_wake_depth: int = setting(
        10, "Turns that wake one another in a chain at most: a mail sent in a woken turn, and so on.", minimum=1
    )
    pool_wakes_a_minute: int = setting(20, "Turns a minute that an agent is woken for at most.", minimum=1)
    pool_wake_tokens: int = setting(
        1_000_000,
        "Tokens that the woken turns of an agent take in a day at most, where it has no budget of its own; 0: no end.",
        minimum=0,
    )
    pool_sandbox: str = setting(
        "preferred",
        "required: no agent's process starts outside of a sandbox (bubblewrap). preferred: it does where none is.",
        choices=("preferred", "required"),
    )
    pool_bus_calls: str = setting(
        "allowed",
        "allowed: an agent process calls the hub's tools as its rights on the bus say. asked: a person is asked first.",
        choices=("allowed", "asked"),
    )
    pool_question_seconds: int = setting(
        1_800,
        "A question to people that nobody answered in so long (s) counts as refused.",
        minimum=1,
        maximum=604_800,
    )
    retention_ended_questions_keep_days: int = setting(
        90,
        "Agents' questions to people that ended longer ago than this (days) may be pruned.",
        minimum=0,
        maximum=36_500,
    )
    pool_hang_seconds: int = setting(
        30,
        "A worker that gave no sign of life for so long (s) is ended, and another started.",
        minimum=1,
        maximum=3_600,
    )
    retention_ended_pool_agents_keep_days: int = setting(
        90,
        "Agents of the pool that ended longer ago than this (days) may be pruned, with what they said.",
        minimum=0,
        maximum=36_500,
    )
    retention_compacted_pool_entries_keep_days: int = setting(
        90,
        "What an agent of the pool knows no more since its context was compacted, longer ago than this (days), may be "
        "pruned.",
        minimum=0,
        maximum=36_500,
    )
    retention_ended_pool_turns_keep_days: int = setting(
        90,
        "Turns of living agents that ended longer ago than this (days), but the last 20 of each, may be pruned once "
        "nothing that was said in them is left.",
        minimum=0,
        maximum=36_500,
    )
