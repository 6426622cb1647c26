"""The version of the package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Return the installed distribution's version; `dev` for a source checkout that is not installed."""
    try:
        return version("nexus-hub")
    except PackageNotFoundError:
        return "dev"
