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
        "A separate port on this machine for JSON-RPC; 0: only the server's port. Without a number: 8765.",
        minimum=0,
        maximum=65_535,
        live=False,
        bare=str(DEFAULT_PORT),
    )
    rpc_beyond_loopback: bool = setting(
        False,
        "Also answer JSON-RPC, and its streams, to agents' keys from other machines. The hub's token counts on "
        "this machine only.",
        live=False,
        bare="true",
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
        "The most turns at once. A tenth, and one of four or more, is for what operators send. The turns that one "
        "agent and all below it sent leave as many again to others. Beside each turn may run one more: a turn that its "
        "agent started and may wait for.",
        minimum=1,
        maximum=1_000,
    )
    pool_stop_seconds: int = setting(
        10, "How long (s) turns may continue when the server ends, before they are interrupted.", minimum=0, maximum=600
    )
    pool_wake_depth: int = setting(
        10,
        "The most turns in a chain, in which each turn was caused by something that the former turn sent.",
        minimum=1,
    )
    pool_sandbox: str = setting(
        "preferred",
        "required: agents' processes start only in a sandbox (bubblewrap). preferred: without one they start "
        "unsandboxed.",
        choices=("preferred", "required"),
    )
    pool_commit_as: str = setting(
        "nexus",
        "Who makes the merge commits in your repositories. operator: you, with the name, address and signature of your "
        "own git configuration (user.name, user.email, commit.gpgSign). Agents' commits then have your address.",
        choices=("nexus", "operator"),
    )
    pool_question_seconds: int = setting(
        1_800,
        "A question that no operator answered within this time (s) counts as refused.",
        minimum=1,
        maximum=604_800,
    )
