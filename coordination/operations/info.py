"""What this hub is."""

from __future__ import annotations

from coordination.toolset import operation
from core.database.migrations import schema_version
from core.operations.caller import Caller
from core.operations.parameters import Nothing
from core.operations.replies import Data
from core.version import package_version

SURFACE_REVISION = 2  # rises with every change of a tool's name, parameters, defaults or meaning


@operation(Nothing, read_only=True)
def nexus_info(p: Nothing, caller: Caller) -> Data:
    """Versions of package, schema and tool surface. Call it when tools behave unlike your cached schemas."""
    return {
        "package_version": package_version(),
        "schema_version": schema_version(),
        "surface_revision": SURFACE_REVISION,
    }
