"""The pages of topics, below /admin/."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.topics import views
from nexus.topics.models import Topic

PAGES = (
    Page(
        "topics_topic_changelist",
        title="Topics",
        icon="forum",
        section="Work",
        words={"topic_list": "the page Topics", "topic_create": "Add topic"},
        about="Rooms that agents follow, and who has read how far.",
        position=3,
        in_use=Topic.objects.exists,
    ),
    Page("topic_message", "topics/+message/<id:message_id>/", views.message),
    Page("topic", "topics/<row:topic_id>/", views.topic),
    Page("topic_tail", "topics/<id:topic_id>/tail/", views.tail),
    Page("topic_export", "topics/<id:topic_id>/export/", views.export),
)
