"""The registry of operations: each is declared once, in a toolset, and every transport finds it here. Each connection
has the toolsets that it chose, because an agent pays for every tool that it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack

from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, ErrorCode, NexusError, not_found
from nexus.core.operations.parameters import Params, shape_of
from nexus.core.operations.replies import ENVELOPE, AgentResource, Data, Outcome, Prompt, Reference, Reply, Text

P = TypeVar("P", bound=Params)
D = TypeVar("D", bound=Data)


@dataclass(frozen=True)
class Requirement:
    """A condition on the caller that is checked before an operation is called; `who` describes it in the reference."""

    who: str
    check: Callable[[Operation[Any], Any, Caller], None]  # raises NexusError


def _must_be_operator(operation: Operation[Any], params: Any, caller: Caller) -> None:
    if caller.operator is None:
        raise NexusError(Code.NOT_OWNER, f"{operation.name} is for operators.", {"rule": OPERATORS_ONLY.who})


OPERATORS_ONLY = Requirement("operators", _must_be_operator)


@dataclass(frozen=True)
class Wait(Generic[P]):
    """How a call that may wait is parked: what wakes it, when it is done, and its answer if nothing comes.

    The operation itself is performed once. After that the wait only reads with `look`, so that a client that gave
    up changes nothing more. `finish` writes what belongs to the answer, such as a cursor, last of all. Without `look`,
    it is tried at each wake: it changes nothing where nothing has come.
    """

    timeout: Callable[[P], float]  # seconds asked for; 0 or less is a snapshot
    interested: Callable[[P], Callable[[Any], bool]]  # which new events are worth another look
    done: Callable[[Data], bool]
    expired: Callable[[P, Data], Data]  # the answer when time ran out, or none was given
    look: Callable[[P, Caller], Data] | None = None  # what is there now
    # The answer to what a look found, after what the call itself answered; one that is not `done`, because another was
    # quicker, is not given, and the wait goes on.
    finish: Callable[[P, Caller, Any], Data] | None = None
    resume: Callable[[P, Data], P] = lambda params, data: params  # where the look after that answer starts
    # Where it starts once no event up to this id concerned the wait.
    past: Callable[[P, int], P] = lambda params, event_id: params
    unfinished: Callable[[Data], bool] = lambda data: False  # a bounded look has more before it: it goes on at once
    next_change: Callable[[P], datetime | None] | None = None  # when time alone may change the answer
    # Told that the caller went away before it was answered, and what the call itself had answered.
    abandoned: Callable[[P, Caller, Data], object] | None = None
    capped: bool = True  # by max_wait_timeout_seconds; without, the parameter itself refuses what is too long

    def at_once(self, params: P, data: Data) -> Data | None:
        """Return the answer of a call that answered `data` and need not wait; None for one that must."""
        if self.done(data):
            return data
        return self.expired(params, data) if self.timeout(params) <= 0 else None


@dataclass(frozen=True)
class Operation(Generic[P]):
    """One operation; MCP, REST, JSON-RPC and the dashboard all call it."""

    toolset: Toolset
    name: str
    params: type[P]
    call: Callable[[P, Caller], Data]
    description: str
    errors: frozenset[ErrorCode]  # the codes that it documents; INTERNAL_ERROR and DB_ERROR go without saying
    acts_as: str | None = None  # the parameter that names the acting agent
    requires: tuple[Requirement, ...] = ()
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    # Whether a call takes longer than other writers or readers may wait: it runs beside their queues.
    slow: Callable[[P], bool] = lambda params: False
    quick: bool = False  # it only looks along indexes, by named SQL: an event loop makes the call itself
    # It uses nothing outside the store but the path of its project: one that was resolved in the last second will do.
    recent_place: bool = False
    takes_minutes: bool = False  # a slow call that may: it waits for another program, or rewrites the store
    own_transaction: bool = False  # it also touches what no transaction holds, and records an operator's act itself
    sign_of_life: bool = False  # it says nothing but that an agent is there: no act of an operator
    tool: bool = True  # whether agents get it as an MCP tool
    advertised: bool = True  # whether lists of tools have it; else it is for clients that know it
    accepts_anything: bool = False  # it was removed: it answers every call shape, and is not advertised
    wait: Wait[P] | None = field(default=None, repr=False)

    @property
    def data(self) -> type[Any] | None:
        """The shape of its data, as its function is annotated."""
        return shape_of(self.call)

    @property
    def operator_only(self) -> bool:
        """Whether only operators may call it."""
        return OPERATORS_ONLY in self.requires

    @property
    def is_recorded(self) -> bool:
        """Whether its calls are recorded, for connections that may repeat them. An idempotent one may simply be made
        again, and one that calls other programs for minutes cannot be."""
        return not (self.read_only or self.idempotent or self.takes_minutes)


class Options(TypedDict, Generic[P], total=False):
    """The fields of an operation that its declaration may give as they are."""

    acts_as: str | None
    requires: tuple[Requirement, ...]
    read_only: bool
    idempotent: bool
    destructive: bool
    takes_minutes: bool
    own_transaction: bool
    sign_of_life: bool
    tool: bool
    advertised: bool
    accepts_anything: bool
    wait: Wait[P] | None


Answer = Callable[[Outcome], Outcome]


class Translator(NamedTuple):
    """An app's translation of the arguments that clients of another system give."""

    concerns: Callable[[Operation[Any], Mapping[str, Any]], bool]  # whether there is any, without a look at the store
    translate: Callable[[Operation[Any], Mapping[str, Any]], Mapping[str, Any]]  # which may read the store
    # What makes of our outcome the one that they know, if the arguments ask for it.
    answer: Callable[[Operation[Any], Mapping[str, Any]], Answer | None]


@dataclass(frozen=True)
class Contents:
    """The content of a toolset."""

    operations: dict[str, Operation[Any]] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)
    agent_resources: list[AgentResource] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Toolset:
    """The operations of one system: agents choose toolsets, and names must be unique only within one."""

    name: str
    description: str  # for agents that do not have it yet
    reply: Reply = ENVELOPE
    default: bool = False  # whether a connection that chooses nothing has it
    instructions: Text = str  # for agents that have it, when they connect; its rules are in the first paragraph
    # What declares its contents where that is left to their first use; else its apps do when they are ready.
    modules: tuple[str, ...] = ()
    listed: bool = True  # whether it is one of ours, on every transport; else another system's, for its clients alone
    translators: list[Translator] = field(default_factory=list, init=False, repr=False)
    _contents: Contents = field(default_factory=Contents, init=False, repr=False)
    _administration: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.name in TOOLSETS:
            raise ValueError(f"toolset {self.name} is declared twice")
        if self.listed:
            TOOLSETS[self.name] = self

    @property
    def contents(self) -> Contents:
        """The whole content; while another thread imports the modules, this waits for it."""
        for module in self.modules:
            import_module(module)
        return self._contents

    def administered_in(self, *modules: str) -> None:
        """Name modules that declare operations that agents do not get. An agent's process, which pays for every
        import, never loads them; others do when they are first needed."""
        self._administration.extend(modules)

    @property
    def operations(self) -> dict[str, Operation[Any]]:
        """Its operations, by name."""
        for module in self._administration:
            import_module(module)
        return self.contents.operations

    @property
    def tools(self) -> list[Operation[Any]]:
        """The operations that agents are offered."""
        every = self.contents.operations.values()
        offered = (operation for operation in every if operation.tool and operation.advertised)
        return sorted((operation for operation in offered if not operation.accepts_anything), key=self.place)

    def place(self, operation: Operation[Any]) -> int:
        """Return an operation's place by `modules`, whose order their first use may change."""
        module = operation.call.__module__
        return self.modules.index(module) if module in self.modules else len(self.modules)

    @property
    def references(self) -> list[Reference]:
        """The pages that its agents may read."""
        return self.contents.references

    @property
    def agent_resources(self) -> list[AgentResource]:
        """The resources that each of its agents has."""
        return self.contents.agent_resources

    @property
    def prompts(self) -> list[Prompt]:
        """The procedures that a person may start."""
        return self.contents.prompts

    def operation(
        self,
        params: type[P],
        *errors: ErrorCode,
        slow: bool | Callable[[P], bool] = False,
        quick: bool = False,
        recent_place: bool = False,
        also: tuple[Toolset, ...] = (),
        **options: Unpack[Options[P]],
    ) -> Callable[[Callable[[P, Caller], D]], Callable[[P, Caller], D]]:
        """Register the decorated function as the operation of its name, in the toolsets of `also`, too.

        Its docstring is the description for agents; the TypedDict that it is annotated to return is the shape of
        its data.
        """

        def register(call: Callable[[P, Caller], D]) -> Callable[[P, Caller], D]:
            name = call.__name__
            if name in self._contents.operations:
                raise ValueError(f"operation {name} of {self.name} is declared twice")
            if options.get("tool", True) and call.__module__ in self._administration:
                raise ValueError(f"operation {name} is a tool: declare it where agents' processes read it")
            registered = Operation(
                toolset=self,
                name=name,
                params=params,
                call=call,
                description=" ".join((call.__doc__ or "").split()),
                errors=frozenset(errors),
                slow=slow if callable(slow) else lambda params: slow,
                quick=quick,
                recent_place=recent_place or quick,
                **options,
            )
            for toolset in (self, *also):
                toolset._contents.operations[name] = registered
            return call

        return register

    def adapt(self, name: str, operation: Operation[Any], params: type[P], call: Callable[[P, Caller], Data]) -> None:
        """Add an operation of ours under another system's name, with that system's parameters and answer. Who may call
        it, and how it is performed, is as for the operation itself."""
        self._contents.operations[name] = replace(operation, params=params, call=call)

    def find(self, name: str) -> Operation[Any]:
        """Return the operation of this name. Raises NOT_FOUND."""
        found = self.contents.operations.get(name)
        for module in self._administration if found is None else ():
            import_module(module)  # no more of them than it takes
            found = self._contents.operations.get(name)
            if found is not None:
                break
        if found is None:
            raise not_found("operation", name[:200])
        return found

    def codes(self) -> Iterator[ErrorCode]:
        """Yield every code that its answers may have: the common ones, and the catalogs that its operations name."""
        named = (code for each in self.operations.values() for code in sorted(each.errors))
        catalogs: dict[type[ErrorCode], None] = dict.fromkeys([Code, *map(type, named)])
        for catalog in catalogs:
            yield from catalog


TOOLSETS: dict[str, Toolset] = {}


def operations() -> Iterator[Operation[Any]]:
    """Yield every operation of every toolset."""
    for toolset in TOOLSETS.values():
        yield from toolset.operations.values()


Choice = tuple[Toolset, ...]  # never empty, and no name stands for two things

ALL = "all"


def choose(names: Iterable[str], unknown: ErrorCode = Code.CONFIG_ERROR) -> Choice:
    """Return the toolsets of these names, in the registry's order; `all` stands for every one.

    Raises `unknown` for an unknown name, CONFIG_ERROR for no name at all and for two toolsets that clash.
    """
    wanted = set(names)
    if strange := sorted(wanted - TOOLSETS.keys() - {ALL}):
        raise no_such(strange[0], unknown)
    choice: Choice = ()
    for toolset in TOOLSETS.values():
        if toolset.name in wanted or ALL in wanted:
            choice = add(choice, toolset)
    if not choice:
        raise NexusError(Code.CONFIG_ERROR, f"Name at least one toolset of {', '.join(TOOLSETS)}.")
    return choice


def no_such(name: str, code: ErrorCode) -> NexusError:
    """Return the error for an unknown toolset, which lists the known ones."""
    return NexusError(
        code,
        f"No such toolset: {name[:200]!r}; there are {', '.join(TOOLSETS)}, or {ALL} for every one.",
        {"field": "toolsets", "toolset": name[:200], "known": list(TOOLSETS)},
    )


def default() -> Choice:
    """Return the toolsets of a connection that chose none."""
    return choose(toolset.name for toolset in TOOLSETS.values() if toolset.default)


def add(choice: Choice, toolset: Toolset) -> Choice:
    """Return a choice with one more toolset. Raises CONFIG_ERROR if two of them have different things of one name."""
    if toolset in choice:
        return choice
    for other in choice:
        theirs, ours = _names(other), _names(toolset)
        if shared := sorted(name for name in theirs.keys() & ours.keys() if theirs[name] is not ours[name]):
            what, name = shared[0]
            raise NexusError(
                Code.CONFIG_ERROR,
                f"The toolsets {other.name} and {toolset.name} both have a {what} {name!r}; choose one of them.",
                {"toolsets": [other.name, toolset.name], "name": name},
            )
    return (*choice, toolset)


def find_tool(choice: Choice, name: str) -> Operation[Any] | None:
    """Return the operation behind a tool of the chosen toolsets, or None."""
    found = (toolset.contents.operations.get(name) for toolset in choice)
    return next((operation for operation in found if operation is not None and operation.tool), None)


def _names(toolset: Toolset) -> dict[tuple[str, str], object]:
    """Return what a client identifies by name alone."""
    return {
        **{("tool", operation.name): operation for operation in toolset.tools},
        **{("prompt", prompt.name): prompt for prompt in toolset.prompts},
        **{("resource", reference.uri): reference for reference in toolset.references},
        **{("resource", resource.prefix): resource for resource in toolset.agent_resources},
    }
