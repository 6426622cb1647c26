"""The SDK's server without its clients and its HTTP: the process of one agent uses neither, and pays for its start.

The SDK has no way to import the one without the others: its packages import all of it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGES = ("mcp", "mcp.server")  # whose own modules import all that there is
UNUSED = (
    "starlette",
    "mcp.server.auth",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
    "mcp.server.transport_security",
)
SERVER = ("mcp.server.lowlevel", "mcp.server.stdio", "mcp.server.subscriptions", "mcp.server.extension")


def load() -> None:
    """Import the server's modules, where the SDK is not there yet. Its clients cannot be imported from then on.

    A version of the SDK that cannot be imported so is left to be imported whole.
    """
    if "mcp" in sys.modules:
        return
    unused = _Unused()
    sys.meta_path.insert(0, unused)
    try:
        for name in PACKAGES:
            spec = find_spec(name)
            assert spec is not None
            bare = ModuleType(name)
            bare.__spec__, bare.__path__ = spec, spec.submodule_search_locations or []
            sys.modules[name] = bare
        for name in SERVER:
            importlib.import_module(name)
    except Exception:  # whatever its modules make of placeholders
        for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
            del sys.modules[name]
    finally:
        sys.meta_path.remove(unused)
        for name in unused.given:  # who needs them gets them as they are
            sys.modules.pop(name, None)


class _Unused(MetaPathFinder, Loader):
    """Finds a module of placeholders for each that is imported and not used."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in UNUSED):
            return None
        self.given.append(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Placeholders(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


class _Placeholders(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
