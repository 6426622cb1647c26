"""What a run costs: as its agent says, or by the prices that pydantic-ai knows. Else the cost is unknown, never 0."""

from __future__ import annotations

from dataclasses import dataclass

MILLIONTHS = 1_000_000  # of a currency, in which costs are stored and added up
MOST = 10**15  # tokens or millionths of one run; an agent that says more is not believed
CURRENCY = r"^[A-Z]{3}$"


@dataclass(frozen=True)
class Cost:
    """Money: millionths of a currency, and where the figure is from."""

    millionths: int
    currency: str
    source: str
