"""The SDK's server without its clients, HTTP and telemetry: the process of one agent uses none, and pays for its start.

The SDK has no way to import the one without the others: its packages import all of it. Its models of both protocols
are built when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema

PACKAGES = ("mcp", "mcp.server")  # whose own modules import all that there is
UNUSED = (
    "starlette",
    "mcp.server.auth",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
    "mcp.server.transport_security",
)
TELEMETRY = "opentelemetry"
SPANS = "mcp.shared._otel"  # all that the SDK does with telemetry, but for a few constants
PROTOCOLS = ("mcp_types._v2025_11_25", "mcp_types._v2026_07_28")  # a client speaks one of them
SERVER = ("mcp.server.lowlevel", "mcp.server.stdio", "mcp.server.subscriptions", "mcp.server.extension")


def load() -> None:
    """Import the server's modules, where the SDK is not there yet. Its clients cannot be imported from then on.

    A version of the SDK that cannot be imported so is left to be imported whole.
    """
    if "mcp" in sys.modules:
        return
    unused = _Unused(UNUSED if TELEMETRY in sys.modules else (*UNUSED, TELEMETRY, SPANS))
    sys.meta_path.insert(0, unused)
    try:
        for name in PACKAGES:
            spec = find_spec(name)
            assert spec is not None
            bare = ModuleType(name)
            bare.__spec__, bare.__path__ = spec, spec.submodule_search_locations or []
            sys.modules[name] = bare
        with _deferred_models():
            for name in SERVER:
                importlib.import_module(name)
    except Exception:  # whatever its modules make of placeholders
        for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
            del sys.modules[name]
    finally:
        sys.meta_path.remove(unused)
        for name in unused.given:  # who needs them gets them as they are
            sys.modules.pop(name, None)


@contextmanager
def _deferred_models() -> Iterator[None]:
    """Models and adapters that are defined meanwhile build their validators when they are first used.

    An agent's process uses a tenth of the several hundred that the SDK defines for both of its protocols.
    """
    at_once = TypeAdapter._defer_build
    BaseModel.model_config["defer_build"] = True
    TypeAdapter._defer_build = True  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]
        TypeAdapter._defer_build = at_once  # type: ignore[method-assign]


class _Unused(MetaPathFinder, Loader):
    """Finds a stand-in for each module that is imported and not used, or not used yet."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.given: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in (*self.names, *PROTOCOLS)):
            return None
        self.given.append(fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name in PROTOCOLS:
            return _LaterModels(spec.name)
        return _NoSpans(spec.name) if spec.name == SPANS else _Placeholders(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


class _Constants(type):
    """Placeholders have any constant."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)


class _Placeholders(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Constants(name, (), {})


class _NoSpan:
    """A span that nobody records."""

    def set_attribute(self, *_: Any) -> None: ...

    def set_attributes(self, *_: Any) -> None: ...

    def set_status(self, *_: Any) -> None: ...

    def record_exception(self, *_: Any) -> None: ...


class _NoSpans(ModuleType):
    @staticmethod
    def otel_span(*_: Any, **__: Any) -> AbstractContextManager[_NoSpan]:
        return nullcontext(_NoSpan())

    @staticmethod
    def inject_trace_context(meta: dict[str, Any]) -> None: ...

    @staticmethod
    def extract_trace_context(meta: Any) -> None: ...


class _LaterModel:
    """Validates as the model of its name, whose module is imported then."""

    @classmethod
    def model_validate(cls, *args: Any, **options: Any) -> Any:
        return cls._model().model_validate(*args, **options)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(cls._model())

    @classmethod
    def _model(cls) -> type[BaseModel]:
        with _deferred_models():
            model: type[BaseModel] = getattr(importlib.import_module(cls.__module__), cls.__name__)
        return model


class _LaterModels(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_LaterModel,), {"__module__": self.__name__})
