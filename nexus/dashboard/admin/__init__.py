"""Every table as records of the admin: read-only, and linked to what they concern."""

from nexus.dashboard.admin import coordination, handoffs, inbox, operators, planning  # noqa: F401  # each registers its models
