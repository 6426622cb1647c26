"""What the process of an agent imports of the SDK."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import sys
from mcp_bridge import lean_sdk
lean_sdk.load()
import mcp_bridge.lean_sdk, mcp.server.lowlevel, mcp.server.stdio
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"starlette", "httpx2", "uvicorn", "cryptography"}))
print(*[name for name in sys.modules if name.startswith(("mcp.client", "mcp.server.auth", "mcp.server.mcpserver"))])
from starlette.applications import Starlette
print(Starlette.__module__)
"""


def test_it_imports_neither_clients_nor_http() -> None:
    """And what it did without is there for who asks for it."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["", "", "starlette.applications"]


BEYOND = """
import sys
from mcp_bridge import lean_sdk
lean_sdk.UNUSED = (*lean_sdk.UNUSED, "mcp.shared.exceptions")
lean_sdk.SERVER = (*lean_sdk.SERVER, "mcp.server.no_such_module")
lean_sdk.load()
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
import mcp.client.stdio
print(Server.__module__, issubclass(MCPError, Exception))
"""


def test_it_imports_all_of_a_version_that_cannot_be_imported_in_part() -> None:
    ran = subprocess.run([sys.executable, "-c", BEYOND], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["mcp.server.lowlevel.server True"]
