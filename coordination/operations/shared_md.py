"""The operation that writes shared.md, an overview of a workspace."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from coordination import shared_md
from coordination.errors import CoordinationCode
from coordination.parameters import WorkspaceId
from coordination.toolset import operation
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Params
from nexus.core.operations.schemas import Time


class SharedMdRender(Params):
    workspace_id: WorkspaceId
    limit_events: Annotated[int, Field(description="How many of the newest events.")] = 50


class RenderedSharedMd(TypedDict):
    path: str
    workspace_id: str
    bytes_written: int
    sections_rendered: int
    limit_events: int
    generated_at: Time


@operation(
    SharedMdRender,
    CoordinationCode.WORKSPACE_REQUIRED,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    CoordinationCode.RENDER_ERROR,
    idempotent=True,
    slow=True,
)
def shared_md_render(p: SharedMdRender, caller: Caller) -> RenderedSharedMd:
    """Write the workspace's shared.md, a readable snapshot of agents, tasks, handoffs and recent events."""
    rendered = shared_md.render(workspace_id=p.workspace_id, limit_events=p.limit_events)
    return {
        "path": str(rendered.path),
        "workspace_id": p.workspace_id,
        "bytes_written": rendered.size,
        "sections_rendered": rendered.sections,
        "limit_events": p.limit_events,
        "generated_at": iso(now()),
    }
