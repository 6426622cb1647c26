"""How every connection to the server is made: nobody waits for one that cannot be reached any more."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict

from nexus.core.config import CoreSettings

# Where the network is cut, nothing comes back, not even an error: without these a call would hang for a quarter of an
# hour. https://www.postgresql.org/docs/current/libpq-connect.html
DEFAULTS = {
    "connect_timeout": 10,  # seconds
    "tcp_user_timeout": 10_000,  # milliseconds until what was sent is known to have arrived
    "keepalives_idle": 5,  # seconds of silence, then the other end is asked
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "client_encoding": "utf8",
}
NAME = {"application_name": "nexus"}  # by which who takes the store's place knows its users: no URL gives another


def parameters(config: CoreSettings) -> dict[str, Any]:
    """The parameters of libpq, by name: what the URL says, our defaults for the rest, and our name."""
    assert config.database_url is not None
    return {**DEFAULTS, **conninfo_to_dict(config.database_url), **NAME}
