"""What is public: an operation is declared once, and every transport finds it in the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from coordination.errors import Code, invalid

if TYPE_CHECKING:
    from coordination.models import Event

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Caller:
    """Who is at the other end of a connection; passed to every operation, read from nowhere else.

    Bound to `agent_id`, the connection acts as that agent only. Bound to none it is a trusted local process, which
    names the acting agent with each call. `operator` names the person behind an administrative connection.
    """

    transport: str
    agent_id: str | None = None
    operator: str | None = None


@dataclass(frozen=True)
class Fault:
    """Marks a parameter whose faults carry a code of their own, instead of VALIDATION_ERROR."""

    absent: Code = Code.VALIDATION_ERROR
    malformed: Code = Code.VALIDATION_ERROR


class Params(BaseModel):
    """Base of every parameter model: strict types, and an unknown argument is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


P = TypeVar("P", bound=Params)

MAX_ID = 255
MAX_INTEGER = 2**63 - 1
MAX_IDS_A_CALL = 1000


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")  # a blank id could be registered and never addressed
    return text


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(_not_blank)]
Label = Annotated[str, Field(max_length=MAX_ID)]
ProjectRoot = Annotated[
    str, Fault(absent=Code.WORKSPACE_REQUIRED), Field(max_length=4096, description="Absolute path of the project.")
]
IN_WORKSPACE = (Code.WORKSPACE_REQUIRED, Code.WORKSPACE_UNRESOLVED, Code.VALIDATION_ERROR)  # with a project_root
Cursor = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Limit = Annotated[int, Field(ge=1, description="Page size; pinned to the maximum.")]
SessionId = Annotated[Id | None, Field(description="From session_open; required in strict trust.")]
SessionSecret = Annotated[Id | None, Field(description="From session_open; checked when given, required in strict.")]


def parse_cursor(given: Any) -> int:
    """A cursor that comes as text or as a number. Raises VALIDATION_ERROR."""
    text = str(given) if isinstance(given, str | int) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INTEGER)) and int(text) <= MAX_INTEGER):
        raise invalid("cursor must be a whole number, 0 or more; pass back the one you were given.", field="cursor")
    return int(text)


@dataclass(frozen=True)
class Wait(Generic[P]):
    """How a call that may wait is parked: what wakes it, when it is done, what it answers in vain."""

    timeout: Callable[[P], float]  # seconds asked for; 0 or less is a snapshot
    interested: Callable[[P], Callable[[Event], bool]]  # which new events are worth another look
    done: Callable[[Data], bool]
    expired: Callable[[P, Data], Data]  # the answer when time ran out
    resume: Callable[[P, Data], P] = lambda params, data: params  # where the next look starts
    next_change: Callable[[P], datetime | None] | None = None  # when time alone may change the answer


@dataclass(frozen=True)
class Operation(Generic[P]):
    """One verb, as MCP, REST, JSON-RPC and the admin all call it."""

    name: str
    params: type[P]
    call: Callable[[P, Caller], Data]
    description: str
    errors: frozenset[Code]  # the codes of its contract; INTERNAL_ERROR and DB_ERROR go without saying
    acts_as: str | None = None  # the parameter that names the acting agent
    session: str | None = None  # the parameter that names its session; makes the verb sensitive
    operator_only: bool = False
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    tool: bool = True  # whether agents get it as an MCP tool
    accepts_anything: bool = False  # a shim answers every call shape
    wait: Wait[P] | None = field(default=None, repr=False)


REGISTRY: dict[str, Operation[Any]] = {}


def operation(
    params: type[P], *errors: Code, **traits: Any
) -> Callable[[Callable[[P, Caller], Data]], Callable[[P, Caller], Data]]:
    """Register the decorated function as the operation of its name; its docstring is the description agents read."""

    def register(call: Callable[[P, Caller], Data]) -> Callable[[P, Caller], Data]:
        name = call.__name__
        if name in REGISTRY:
            raise ValueError(f"operation {name} is declared twice")
        description = " ".join((call.__doc__ or "").split())
        REGISTRY[name] = Operation(name, params, call, description, frozenset(errors), **traits)
        return call

    return register
