"""What keeps a project's files from being read, for the pages that show its plan."""

from __future__ import annotations

from django.http import HttpRequest

from coordination.models import Workspace
from nexus.core.operations import dispatch
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import ENVELOPE
from nexus.web.page import in_words_of_pages, operator


def trouble(request: HttpRequest, workspace: Workspace) -> str:
    """Import foreign changes of the project's files; return why that failed, or an empty text.

    The rows can be shown in either case.
    """
    about = {"project_root": workspace.root_realpath}
    envelope = in_words_of_pages(
        ENVELOPE.body(dispatch.perform(TOOLSETS["planning"], operator(request), "plan_status", about))
    )
    return "" if envelope["ok"] else f"{envelope['error']['message']} ({envelope['error']['code']})"
