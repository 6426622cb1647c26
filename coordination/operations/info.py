"""The operation that describes this hub."""

from __future__ import annotations

from typing_extensions import TypedDict

from coordination.toolset import operation
from nexus.core.database.migrations import schema_version
from nexus.core.operations.caller import Caller
from nexus.core.operations.parameters import Nothing
from nexus.core.version import package_version

SURFACE_REVISION = 3  # rises with every change of a tool's name, parameters, defaults or meaning


class HubInfo(TypedDict):
    package_version: str
    schema_version: int
    surface_revision: int


@operation(Nothing, read_only=True)
def nexus_info(p: Nothing, caller: Caller) -> HubInfo:
    """Versions of package, schema and tools: call it when tools do not behave as described."""
    return {
        "package_version": package_version(),
        "schema_version": schema_version(),
        "surface_revision": SURFACE_REVISION,
    }
