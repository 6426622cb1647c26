"""Who is at the other end of a connection."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Caller:
    """Who calls; passed to every operation, read from nowhere else.

    Bound to `agent_id`, the connection acts as that agent only. Bound to none it is a trusted local process, which
    names the acting agent with each call. `operator` names the person behind an administrative connection.
    `credential` is what bound it, as the domain knows a key; it is looked at again with each call, wake and notice.
    `connection` tells one connection from another for as long as it lasts: a stdio process, an MCP session, a REST key.
    """

    transport: str
    agent_id: str | None = None
    operator: str | None = None
    connection: str | None = None
    credential: str | None = field(default=None, compare=False, repr=False)
