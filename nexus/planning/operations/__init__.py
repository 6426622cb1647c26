"""What this app offers: the eleven tools and the resume decision, as agents are shown them; then what operators do."""

from nexus.planning.operations import plans, tasks, history, resume, administration  # noqa: F401, I001  # each registers its operations
