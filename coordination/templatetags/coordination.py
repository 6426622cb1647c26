"""Template filters for data of the bus."""

from __future__ import annotations

from typing import Any

from django import template
from django.http import HttpRequest
from django.urls import reverse

from coordination import switcher
from coordination.models import Workspace
from coordination.routing import describe
from nexus.web.forms import OFFERED

register = template.Library()


@register.filter
def target(value: Any) -> str:
    """Return a target in words."""
    return describe(value)


@register.inclusion_tag("coordination/switcher.html")
def workspace_switcher(request: HttpRequest) -> dict[str, Any]:
    """Return the menu in the header that chooses a workspace: for this page if it can follow, otherwise for Home."""
    follows = switcher.follows(request)
    return {
        "chosen": switcher.chosen_workspace(request),
        "follows": follows,
        "workspaces": Workspace.objects.order_by("-last_seen_at")[:OFFERED],
        "page": request.path if follows else reverse("admin:index"),
    }
