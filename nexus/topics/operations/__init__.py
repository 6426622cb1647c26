"""What this app offers: the ten tools, in the order in which agents are shown them; then what operators do."""

from nexus.topics.operations import rooms, reading, administration  # noqa: F401, I001  # each registers its operations
