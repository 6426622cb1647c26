"""What an error of a provider is called, and how long to wait after it."""

from __future__ import annotations

from typing import Any

import pytest

from nexus.control import faults
from nexus.control.faults import Fault, FaultKind


@pytest.mark.parametrize(
    ("code", "data", "kind"),
    [  # as published agents answer over ACP
        (-32_603, {"errorKind": "rate_limit"}, FaultKind.OVERLOADED),
        (-32_603, {"errorKind": "authentication_failed"}, FaultKind.KEY),
        (-32_603, {"message": "x", "codexErrorInfo": "usageLimitExceeded"}, FaultKind.QUOTA),
        (-32_603, {"codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 429}}}, FaultKind.OVERLOADED),
        (-32_603, {"codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}}}, FaultKind.UNREACHABLE),
        (401, None, FaultKind.KEY),
        (429, {"details": "x"}, FaultKind.OVERLOADED),
        (500, None, None),
        (-32_603, None, None),
        (-32_603, {"details": "429 Too Many Requests, retry after 604800: invalid API key, ECONNREFUSED"}, None),
        (-32_603, {"errorKind": "none that is known"}, None),
        (-32_603, {"errorKind": ["rate_limit"]}, None),
        (-32_603, {"codexErrorInfo": {}}, None),
        (-32_603, {"codexErrorInfo": {"other": "x"}}, None),
        (-32_603, "Authentication required", None),
    ],
)
def test_it_names_the_fault_of_an_agents_error_by_its_code_and_data(
    code: int, data: Any, kind: FaultKind | None
) -> None:
    assert faults.of_error(code, data) == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, FaultKind.KEY),
        (403, FaultKind.KEY),
        (402, FaultKind.QUOTA),
        (429, FaultKind.OVERLOADED),
        (529, FaultKind.OVERLOADED),
        (502, FaultKind.FAILING),
        (408, FaultKind.FAILING),
        (400, None),
        (404, None),
        (422, None),
        (32_000, None),
    ],
)
def test_it_names_the_fault_of_a_status(status: int, kind: FaultKind | None) -> None:
    assert faults.of_status(status) == kind


def test_the_wait_doubles_up_to_a_quarter_of_an_hour_unless_the_provider_names_a_time() -> None:
    unnamed = Fault(FaultKind.UNREACHABLE)
    assert [faults.seconds_to_wait(unnamed, failures) for failures in (1, 2, 3, 7, 8, 10_000)] == [
        *(10, 20, 40, 640, 900, 900),
    ]
    assert faults.seconds_to_wait(Fault(FaultKind.OVERLOADED, 1_800), 5) == 1_800
    assert faults.seconds_to_wait(Fault(FaultKind.OVERLOADED, 604_800), 5) == 3_600
    assert faults.seconds_to_wait(Fault(FaultKind.QUOTA), 1) == faults.seconds_to_wait(Fault(FaultKind.KEY), 1) == 900
