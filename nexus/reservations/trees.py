"""What a project is in the other work trees of its repository: the same files, which one branch will hold one day."""

from __future__ import annotations

from coordination.paths import workspace_id_of
from coordination.services.workspaces import Place
from nexus.reservations.guard import repository


def shared_by(place: Place) -> list[str]:
    """The ids of the workspaces in which the same names are the same files: the project's own first, and those in its
    place in the other work trees, whether or not anybody works there."""
    here = repository.find(place.root)
    if here is None:
        return [place.workspace_id]
    inner = place.root[len(here.top) :]
    return [place.workspace_id, *(workspace_id_of(tree + inner) for tree in here.trees if tree != here.top)]
