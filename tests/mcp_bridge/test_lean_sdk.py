"""What the process of an agent imports of the SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import environment

pytestmark = pytest.mark.usefixtures("starts_processes")

LOADED = """
import sys
from mcp_bridge import lean_sdk
lean_sdk.load()
import mcp_bridge.lean_sdk, mcp.server.lowlevel, mcp.server.stdio
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"starlette", "httpx2", "uvicorn", "opentelemetry"}))
print(*[name for name in sys.modules if name.startswith(("mcp.client", "mcp.server.auth", "mcp.server.mcpserver"))])
from starlette.applications import Starlette
from opentelemetry.trace import SpanKind
print(Starlette.__module__, SpanKind.SERVER.name)
"""


def test_it_imports_neither_clients_nor_http_nor_telemetry() -> None:
    """And what it did without is there for who asks for it."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["", "", "starlette.applications SERVER"]


RECORDED = """
import opentelemetry.trace
from mcp_bridge import lean_sdk
lean_sdk.load()
from mcp.shared import _otel
print(_otel.get_tracer is opentelemetry.trace.get_tracer)
"""


def test_it_leaves_telemetry_to_who_records_it() -> None:
    ran = subprocess.run([sys.executable, "-c", RECORDED], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["True"]


PROTOCOLS = """
import sys
from mcp_bridge import lean_sdk
lean_sdk.load()
from mcp_types import methods
from pydantic import BaseModel, TypeAdapter, ValidationError

def imported():
    print(*sorted(name for name in sys.modules if name.startswith("mcp_types._v")))

class Model(BaseModel):
    number: int

print(Model.__pydantic_complete__, TypeAdapter(list[int]).pydantic_complete)
imported()
for version in ("2025-06-18", "2026-07-28"):
    content = [{"type": "text", "text": "t", "unknown": 1}]
    told = {"content": content, "isError": False, "resultType": "complete"}
    print(methods.serialize_server_result("tools/call", version, told)["content"])
    try:
        methods.validate_client_request("tools/call", version, {"name": 1})
    except ValidationError as error:
        print(("params", "name") in [each["loc"] for each in error.errors()])
    imported()
"""


def test_it_imports_the_models_of_a_protocol_that_is_spoken() -> None:
    ran = subprocess.run([sys.executable, "-c", PROTOCOLS], capture_output=True, text=True, check=True)
    old, new = "mcp_types._v2025_11_25", "mcp_types._v2026_07_28"
    answers = ["[{'text': 't', 'type': 'text'}]", "True"]
    assert ran.stdout.splitlines() == ["True True", "", *answers, old, *answers, f"{old} {new}"]


BEYOND = """
import sys
from mcp_bridge import lean_sdk
lean_sdk.UNUSED = (*lean_sdk.UNUSED, "mcp.shared.exceptions")
lean_sdk.SERVER = (*lean_sdk.SERVER, "mcp.server.no_such_module")
lean_sdk.load()
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
import mcp.client.stdio
print(Server.__module__, issubclass(MCPError, Exception))
"""


def test_it_imports_all_of_a_version_that_cannot_be_imported_in_part() -> None:
    ran = subprocess.run([sys.executable, "-c", BEYOND], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["mcp.server.lowlevel.server True"]


LEFT_OUT = """
import os, sys
from nexus_site import launch
os._exit = lambda code: (at_end(), os.kill(os.getpid(), 9))

def at_end():
    unused = ("ssl", "_hashlib", "django.forms.fields", "django.template", "django.core.cache.backends.filebased")
    print(*[name for name in unused if name in sys.modules], file=sys.stderr)
    from django import forms
    from django.core.checks import caches
    from django.db.models import fields
    from django.forms.models import ModelForm
    import sqlparse, ssl
    print(forms.ModelForm is ModelForm is fields.forms.ModelForm, caches.E001.id, file=sys.stderr)
    print(sqlparse.split("a; b"), ssl.SSLContext.__module__, file=sys.stderr)

launch.main(["nexus", "runmcp"])
"""


def test_a_process_of_an_agent_loads_neither_forms_nor_tls(tmp_path: Path) -> None:
    """And they are there for who asks for them."""
    ran = subprocess.run(
        [sys.executable, "-c", LEFT_OUT],
        env=environment(tmp_path, NEXUS_STANDALONE="1"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.stderr.splitlines() == ["", "True caches.E001", "['a;', 'b'] ssl"]
