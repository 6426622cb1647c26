"""What a run costs: as its agent says, else by `prices.toml` in the home (docs/how-to/run-a-pool.md).

The operator writes the file; Nexus ships no prices. Without a price the cost is unknown, never 0.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nexus.control.runners_file import Model, Runner
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import Code, NexusError

FILE = "prices.toml"
LARGEST = 1_048_576  # bytes
MILLIONTHS = 1_000_000  # of a currency, in which costs are stored and added up
MOST = 10**15  # tokens or millionths of one run; an agent that says more is not believed
CURRENCY = r"^[A-Z]{3}$"


@dataclass(frozen=True)
class Cost:
    """Money: millionths of a currency, and where the figure is from."""

    millionths: int
    currency: str
    source: str


class Price(BaseModel):
    """Prices of a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Annotated[Decimal, Field(ge=0, le=1_000_000)]
    output: Annotated[Decimal, Field(ge=0, le=1_000_000)]
    cached: Annotated[Decimal | None, Field(ge=0, le=1_000_000)] = None  # of input from a cache; else as `input`


class Prices(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: Annotated[str, Field(pattern=CURRENCY)] = "USD"
    date: date
    models: dict[str, Price] = {}


@dataclass(frozen=True)
class Tariff:
    """The price of a runner's tokens."""

    price: Price
    currency: str
    source: str

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int | None) -> Cost | None:
        """Return the cost of tokens, of which the cached ones are a part of the input; None if there are none."""
        if not (input_tokens or output_tokens):
            return None
        price, cached = self.price, min(cached_tokens or 0, input_tokens)
        per_cached = price.input if price.cached is None else price.cached
        total = price.input * (input_tokens - cached) + per_cached * cached + price.output * output_tokens
        return Cost(min(round(total), MOST), self.currency, self.source)


def tariff_of(runner: Runner) -> Tariff | None:
    """Return the price of a runner's model, or of the runner's name; None without one, and while the file is
    invalid."""
    try:
        prices = read()
    except NexusError:
        return None
    if prices is None:
        return None
    names = (runner.model, runner.name) if isinstance(runner, Model) else (runner.name,)
    price = next((prices.models[name] for name in names if name in prices.models), None)
    return None if price is None else Tariff(price, prices.currency, f"{FILE} of {prices.date.isoformat()}")


def read() -> Prices | None:
    """Return the prices of this home; None if it has no file. Raises CONFIG_ERROR, which names what to change."""
    path = CoreSettings.current().home / FILE
    try:
        stamp = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(stamp.st_mode):  # a pipe would wait for a writer
        raise _wrong(path, "is no file")
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int, size: int) -> Prices:
    if size > LARGEST:
        raise _wrong(path, f"has over {LARGEST} bytes")
    try:
        given: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        return Prices.model_validate(given)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(path, f"is wrong at {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (ValueError, ArithmeticError, RecursionError) as error:  # of TOML, of UTF-8 and of numbers
        raise _wrong(path, f"is no TOML: {error}") from None


def _wrong(path: Path, why: str) -> NexusError:
    return NexusError(Code.CONFIG_ERROR, f"{path} {why}. docs/how-to/run-a-pool.md shows one.", {"file": str(path)})
