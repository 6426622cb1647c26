"""The command line of the soak. Exit code 1 when a promise was broken."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import benchmarks.soak


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=benchmarks.soak.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=int, default=600, help="how long the team works (default: %(default)s)")
    parser.add_argument("--database-url", help="an empty PostgreSQL database that holds the store")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    report = benchmarks.soak.soak(options.seconds, options.database_url)
    print(json.dumps(report, indent=2) if options.json else table(report))
    sys.exit(1 if report["violations"] else 0)


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    rows = []
    for name, value in report.items():
        values = value if isinstance(value, list) else [value]
        for number, item in enumerate(values or ["none"]):
            label = name.replace("_", " ") if number == 0 else ""
            text = ", ".join(f"{key} {part}" for key, part in item.items()) if isinstance(item, dict) else str(item)
            rows.append(f"{label:28}{text or 'none'}")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
