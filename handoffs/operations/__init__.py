"""What this app offers: handing work over so that exactly one agent takes it; then what operators do."""

from handoffs.operations import offering, holding, ending, reading, administration  # noqa: F401, I001  # each registers its operations
import handoffs.shared_md  # noqa: F401  # contributes its section
