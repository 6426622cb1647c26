"""Rooms that touch what others made go through one module, which follows no link, waits for nothing and has bounds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("nexus/control", "nexus/hooks", "nexus/planning", "nexus/reservations")
OF_PATHS = {"read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "glob", "rglob"}
OF_MODULES = {
    "os": {"open", "listdir", "scandir", "walk", "fwalk", "removedirs"},
    "shutil": {"rmtree", "copy", "copy2", "copyfile", "copytree", "move"},
    "io": {"open"},
}
OURS, PACKAGE = "in the hub's own home", "of this package"
KERNEL = "in /proc"
IN_GIT = "names in a git directory, in which git itself looks for them"
OPENED = "by a descriptor of that module"
EXCEPTIONS = {
    "nexus/control/maintenance.py _check_worktrees": OURS,
    "nexus/control/maintenance.py _files_in": OURS,
    "nexus/control/runners_file.py _read": OURS,
    "nexus/control/runners_file.py presets": PACKAGE,
    "nexus/control/runners/programs/git_steps.py copy": "without following links, a regular file alone",
    "nexus/control/runners/sandbox.py _system": PACKAGE,
    "nexus/control/runners/traffic.py lines_of": OURS,
    "nexus/control/runners/traffic.py write": OURS,
    "nexus/control/runners/tools/files.py list_directory": OPENED,
    "nexus/control/worktrees/trees.py lock": OURS,
    "nexus/control/worktrees/trees.py _apart": "in a directory of ours that ends with the call",
    "nexus/control/worktrees/local_files.py bring": "in a new clone that nobody has yet",
    "nexus/control/worktrees/trees.py _create": "in a new clone that nobody has yet",
    "nexus/hooks/panes.py _has_foreground": KERNEL,
    "nexus/hooks/client_processes.py _agents_in": OURS,
    "nexus/hooks/client_processes.py _process": KERNEL,
    "nexus/hooks/client_processes.py _runs_something": KERNEL,
    "nexus/hooks/client_processes.py _tidy": OURS,
    "nexus/hooks/harness.py derived_id": OURS,
    "nexus/hooks/hook_state.py _load": OURS,
    "nexus/hooks/hook_state.py lock": OURS,
    "nexus/hooks/hook_state.py _fault_files": OURS,
    "nexus/hooks/hook_state.py take_place": OURS,
    "nexus/hooks/hook_state.py waiting_hooks": OURS,
    "nexus/hooks/hook_state.py _is_held": OURS,
    "nexus/hooks/setup_pieces.py hooks": OURS,
    "nexus/hooks/client_commands.py _is_pythons": "the program that runs",
    "nexus/hooks/setup_record.py paths": OURS,
    "nexus/reservations/guard/hooks.py _submodules": IN_GIT,
    "nexus/hooks/setup_record.py read": OURS,
    "nexus/planning/catalog/bundled.py _text": PACKAGE,
    "nexus/planning/directory.py _create": OPENED,
    "nexus/planning/directory.py _folder": "the project's root, a real path",
    "nexus/planning/directory.py _open_lock": OPENED,
    "nexus/control/worktrees/trees.py clear_scratch": OURS,
    "nexus/planning/directory.py _open_to_read": OPENED,
    "nexus/planning/directory.py append": OPENED,
    "nexus/planning/directory.py names": OPENED,
    "nexus/planning/install.py plan": OPENED,
    "nexus/reservations/guard/hooks.py _keep": "a new file beside the hook",
    "nexus/reservations/guard/repository.py linked_trees": "names alone",
    "nexus/reservations/hook.py handle": "the file that the client names for the variables of its shells",
}


def calls(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the calls that open files, each with the function around it."""
    within = {
        inner: each.name
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for inner in ast.walk(each)
    }
    for call, function in within.items():
        if not isinstance(call, ast.Call):
            continue
        match call.func:
            case ast.Name("open"):
                yield function, "open"
            case ast.Attribute(ast.Name(module), name) if name in OF_MODULES.get(module, ()):
                yield function, f"{module}.{name}"
            case ast.Attribute(_, name) if name in OF_PATHS:
                yield function, name
            case ast.Attribute(_, "open") if any(isinstance(mode, ast.Constant) for mode in call.args) or call.keywords:
                yield function, "open"


def test_what_others_made_is_touched_by_one_module_alone() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py") if "migrations" not in file.parts]
    found = {f"{file.relative_to(ROOT)} {function}" for file in files for function, _ in calls(file)}
    assert found - set(EXCEPTIONS) == set(), "use nexus/core/foreign_files.py, or say here why not"
    assert set(EXCEPTIONS) - found == set()
