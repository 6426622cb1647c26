"""The SDK's server without its clients, HTTP and telemetry, which the process of one agent does not use and would have
to import at its start.

The SDK cannot be imported in parts: its packages import all of it. Its models of both protocols are built at their
first use.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # before `ssl` is left out
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

PACKAGES = ("mcp", "mcp.server")  # their own modules import everything
UNUSED = (
    "ssl",  # anyio needs it for its own connections
    "starlette",
    "mcp.server.auth",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
    "mcp.server.transport_security",
)
TELEMETRY = "opentelemetry"
SPANS = "mcp.shared._otel"  # the SDK's telemetry, except for a few constants
PROTOCOLS = ("mcp_types._v2025_11_25", "mcp_types._v2026_07_28")  # a client speaks one of them
SERVER = (
    *("mcp.server.lowlevel", "mcp.server.stdio", "mcp.server.subscriptions", "mcp.server.extension"),
    "anyio._backends._asyncio",  # otherwise imported at its first use
)


def load() -> None:
    """Import the server's modules, unless the SDK is imported already. Its clients cannot be imported afterwards.

    A version of the SDK with which this fails is imported as a whole later.
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
    except Exception:  # whatever its modules do with placeholders
        for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
            del sys.modules[name]
    finally:
        sys.meta_path.remove(unused)
        for name in unused.given:  # their users get the unchanged ones
            sys.modules.pop(name, None)


@contextmanager
def _deferred_models() -> Iterator[None]:
    """Inside, models and adapters are defined so that they build their validators at their first use.

    An agent's process uses a tenth of the several hundred that the SDK defines for both protocols.
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
    """An importer of placeholders for modules that are not used, or not yet."""

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
        """Leave the module empty."""


class _Constants(type):
    """A metaclass with which placeholders have any constant."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)


class _Placeholders(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Constants(name, (), {})


class _NoSpan:
    """A span that is not recorded."""

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
    """Validates as the model of its name, and imports that model's module then."""

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
