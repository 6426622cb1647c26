"""Operations on what agents share: channels (labels on messages), artifacts and shared.md."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination import shared_md
from coordination.errors import CoordinationCode
from coordination.models import Artifact
from coordination.parameters import IN_WORKSPACE, ClientId, ProjectRoot, WorkspaceId
from coordination.rows import ArtifactRow, ChannelRow, Duplicate, artifact_row, channel_row
from coordination.services import artifacts, workspaces
from coordination.toolset import operation
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Label, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.core.size_limits import up_to_the_limit


class ChannelCreate(Params):
    project_root: ProjectRoot
    name: str


class CreatedChannel(TypedDict):
    channel: ChannelRow
    created: bool


@operation(ChannelCreate, *IN_WORKSPACE, idempotent=True)
def channel_create(p: ChannelCreate, caller: Caller) -> CreatedChannel:
    """Create a channel, or get the one of that name. Channels are labels; they decide neither access nor delivery."""
    channel, created = workspaces.create_channel(project_root=p.project_root, name=p.name)
    return {"channel": channel_row(channel), "created": created}


class ChannelList(Params):
    project_root: ProjectRoot


class Channels(TypedDict):
    channels: list[ChannelRow]


@operation(ChannelList, *IN_WORKSPACE, idempotent=True)
def channel_list(p: ChannelList, caller: Caller) -> Channels:
    """List the workspace's channels; `general` always exists."""
    return {
        "channels": [channel_row(channel) for channel in workspaces.list_and_seed_channels(project_root=p.project_root)]
    }


class ArtifactPut(Params):
    project_root: ProjectRoot
    artifact_type: Annotated[Label, Field(description="file, text, json or markdown.")]
    name: Label | None = None
    path: Annotated[
        str | None, Field(min_length=1, max_length=4096, description="A file below project_root, instead of content.")
    ] = None
    content: Annotated[str | None, up_to_the_limit("a file and path.")] = None
    metadata: Any = None
    client_id: ClientId = None


class PublishedArtifact(ArtifactRow):
    path: NotRequired[Annotated[str | None, Field(description="Of a file, below project_root.")]]


class PutArtifact(PublishedArtifact):
    duplicate: NotRequired[Duplicate]


@operation(ArtifactPut, *IN_WORKSPACE, Code.CONTENT_TOO_LARGE, CoordinationCode.PATH_OUTSIDE_WORKSPACE)
def artifact_put(p: ArtifactPut, caller: Caller) -> PutArtifact:
    """Publish an artifact: inline content, or the path of a file in the project. Cite its artifact_id in messages."""
    artifact, new = artifacts.put(
        project_root=p.project_root,
        artifact_type=p.artifact_type,
        name=p.name,
        path=p.path,
        content=p.content,
        metadata=p.metadata,
        actor=caller.agent_id,
        measure=caller.agent_id is None,  # an agent with a key may be on another machine, or in a sandbox
        client_id=p.client_id,
    )
    published: PutArtifact = {**artifact_row(artifact)}  # type: ignore[typeddict-item]  # a row holds no path
    if artifact.stored == "path":
        published["path"] = artifact.path
    if not new:
        published["duplicate"] = True
    return published


class ArtifactGet(Params):
    project_root: ProjectRoot
    artifact_id: Id


class FoundArtifact(PublishedArtifact):
    name: str | None
    metadata: Any
    content: NotRequired[Annotated[str | None, Field(description="If it is inline.")]]


@operation(ArtifactGet, *IN_WORKSPACE, Code.NOT_FOUND, read_only=True)
def artifact_get(p: ArtifactGet, caller: Caller) -> FoundArtifact:
    """Get an artifact: its content when inline, its path (never the file's bytes) otherwise."""
    artifact = artifacts.get(project_root=p.project_root, artifact_id=p.artifact_id)
    found: FoundArtifact = {
        **artifact_row(artifact),  # type: ignore[typeddict-item]  # a row holds neither path nor content
        "name": artifact.name,
        "metadata": artifact.metadata,
    }
    if artifact.stored == "path":
        found["path"] = artifact.path
    else:
        found["content"] = artifact.content
    return found


class ArtifactList(Params):
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class DescribedArtifact(ArtifactRow):
    name: str | None
    path: str | None
    metadata: Any
    project_root: str


class ArtifactPage(TypedDict):
    artifacts: list[DescribedArtifact]


class ReadArtifact(DescribedArtifact):
    content: NotRequired[Annotated[str | None, Field(description="If it is inline.")]]


@operation(
    ArtifactList,
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.VALIDATION_ERROR,
    requires=(OPERATORS_ONLY,),
    tool=False,
    read_only=True,
)
def artifact_list(p: ArtifactList, caller: Caller) -> ArtifactPage:
    """List the newest artifacts of all workspaces or of one, without their content."""
    return {
        "artifacts": [_described(artifact) for artifact in artifacts.newest(project_root=p.project_root, limit=p.limit)]
    }


class ArtifactRef(Params):
    artifact_id: Id


@operation(ArtifactRef, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def artifact_read(p: ArtifactRef, caller: Caller) -> ReadArtifact:
    """Get any artifact of any workspace, as an operator: its content if inline, else its path."""
    artifact = artifacts.find_artifact(artifact_id=p.artifact_id)
    read: ReadArtifact = {**_described(artifact)}  # type: ignore[typeddict-item]  # which holds no content
    if artifact.stored != "path":
        read["content"] = artifact.content
    return read


def _described(artifact: Artifact) -> DescribedArtifact:
    return {
        **artifact_row(artifact),
        "name": artifact.name,
        "path": artifact.path if artifact.stored == "path" else None,
        "metadata": artifact.metadata,
        "project_root": artifact.workspace.root_realpath,
    }


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
