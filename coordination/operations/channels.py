"""Channels: labels on messages."""

from __future__ import annotations

from coordination.parameters import IN_WORKSPACE, ProjectRoot
from coordination.rows import channel_data
from coordination.services import channels
from coordination.toolset import operation
from core.operations.caller import Caller
from core.operations.parameters import Params
from core.operations.replies import Data


class ChannelCreate(Params):
    project_root: ProjectRoot
    name: str


@operation(ChannelCreate, *IN_WORKSPACE, idempotent=True)
def channel_create(p: ChannelCreate, caller: Caller) -> Data:
    """Create a channel, or get the one of that name. Channels are labels; they decide neither access nor delivery."""
    channel, created = channels.create(project_root=p.project_root, name=p.name)
    return {"channel": channel_data(channel), "created": created}


class ChannelList(Params):
    project_root: ProjectRoot


@operation(ChannelList, *IN_WORKSPACE, idempotent=True)
def channel_list(p: ChannelList, caller: Caller) -> Data:
    """List the workspace's channels; `general` always exists."""
    return {"channels": [channel_data(channel) for channel in channels.list_and_seed(project_root=p.project_root)]}
