"""The operations of handoffs: those of agents, and those of operators."""

from handoffs.operations import offering, holding, reading  # noqa: F401, I001  # each registers its operations
import handoffs.shared_md  # noqa: F401  # contributes its section
from coordination.toolset import COORDINATION

COORDINATION.administered_in(f"{__name__}.administration")
