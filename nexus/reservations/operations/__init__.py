"""What this app offers: what agents do with files, then what operators do."""

from nexus.reservations.operations import reserving, holding, administration  # noqa: F401, I001  # each registers its operations
