"""Operations on channels: labels on messages."""

from __future__ import annotations

from typing_extensions import TypedDict

from coordination.parameters import IN_WORKSPACE, ProjectRoot
from coordination.rows import ChannelRow, channel_row
from coordination.services import channels
from coordination.toolset import operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.parameters import Params


class ChannelCreate(Params):
    project_root: ProjectRoot
    name: str


class CreatedChannel(TypedDict):
    channel: ChannelRow
    created: bool


@operation(ChannelCreate, *IN_WORKSPACE, idempotent=True)
def channel_create(p: ChannelCreate, caller: Caller) -> CreatedChannel:
    """Create a channel, or get the one of that name. Channels are labels; they decide neither access nor delivery."""
    channel, created = channels.create(project_root=p.project_root, name=p.name)
    return {"channel": channel_row(channel), "created": created}


class ChannelList(Params):
    project_root: ProjectRoot


class Channels(TypedDict):
    channels: list[ChannelRow]


@operation(ChannelList, *IN_WORKSPACE, idempotent=True)
def channel_list(p: ChannelList, caller: Caller) -> Channels:
    """List the workspace's channels; `general` always exists."""
    return {"channels": [channel_row(channel) for channel in channels.list_and_seed(project_root=p.project_root)]}
