"""What this app offers: the eleven tools and the resume decision, in the order in which agents are shown them."""

from planning.operations import plans, tasks, history, resume  # noqa: F401, I001  # each registers its operations
