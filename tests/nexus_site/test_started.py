"""Where Nexus is started: the variables, streams, home and umask that a person, a client or a container gives it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nexus.core import outward, surroundings
from tests import warm
from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.pool import until
from tests.acceptance.processes import environment
from tests.conftest import Furnish

HOOKED = '{"hook_event_name": "SessionStart", "cwd": "/"}'
INITIALIZE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
    '"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}\n'
)


@pytest.fixture
def home(furnish: Furnish, tmp_path: Path) -> Path:
    """A home with a store."""
    return furnish(tmp_path / "home")


def started(
    home: Path, *command: str, how: str = "", text: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a new Python; `how` are the shell's words for its streams."""
    line = f'exec "$@" {how}'
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=environment(home, **environ),
        input=text,
        text=True,
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
    )


# A working directory that was deleted, such as a worktree


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(("command", "said"), [("status", "handoffs"), ("hook --client codex --event Stop", "")])
def test_a_working_directory_that_is_gone_ends_no_command(tmp_path: Path, command: str, said: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, str(ROOT / "manage.py"), *command.split()],
        cwd=gone,
        env=environment(tmp_path / "home", PYTHONPATH="", PWD=str(gone)),
        input="{}",
        text=True,
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr, said in done.stdout) == (0, "", True)


# Another Django project's variable


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        (["agents", "create", "ann"], "", "nxs_"),
        (["status"], "", "handoffs"),
        (["doctor"], "", "There is no store"),
        (["runmcp"], INITIALIZE, '"serverInfo"'),
        (["setup", "--check", "--client", "codex"], "", "Nexus answers"),
        (["check"], "", "no issues"),  # Django's own
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_another_projects_settings_module_is_not_ours(tmp_path: Path, command: list[str], text: str, said: str) -> None:
    done = warm.run(
        command,
        environment(tmp_path / "home", DJANGO_SETTINGS_MODULE="shop.settings"),
        given=text,
        timeout=START_SECONDS,
    )
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("starts_processes")
def test_nor_is_one_that_is_on_the_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "settings.py").write_text("raise SystemExit('the shop')")
    variables = {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(tmp_path)}
    assert started(home, "agents", "list", **variables).stdout == "none\n"
    application = "from nexus_site.asgi import application; print(application)"
    done = subprocess.run(
        [sys.executable, "-c", application],
        cwd=ROOT,
        env=environment(home, **variables),
        capture_output=True,
    )
    assert (done.returncode, b"the shop" in done.stderr) == (0, False), done.stderr


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.sqlite
def test_djangos_migrate_makes_a_store_as_ours_do(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    done = warm.run(["migrate"], environment(home), timeout=START_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "nexus.db")] == [0o700, 0o600]


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("command", "said"), [("migrate", "DB_ERROR: Cannot create "), ("showmigrations", "DB_ERROR: The store cannot be")]
)
def test_djangos_commands_say_one_line_where_there_can_be_no_store(tmp_path: Path, command: str, said: str) -> None:
    (tmp_path / "file").touch()
    done = warm.run([command], environment(tmp_path / "file" / "home"), timeout=START_SECONDS)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"[nexus] {said}")


@pytest.mark.usefixtures("starts_processes")
def test_python_without_docstrings_leaves_agents_theirs(home: Path) -> None:
    asked = INITIALIZE + '{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}\n'
    said = started(home, "runmcp", text=asked, PYTHONOPTIMIZE="2").stdout
    tools = json.loads(said.splitlines()[1])["result"]["tools"]
    assert all(tool["description"] for tool in tools)


# Streams


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("how", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_an_empty_one(home: Path, how: str) -> None:
    done = started(home, "agents", "list", how=how)
    assert (done.returncode, done.stderr) == (3, "")
    done = started(home, "hook", "--client", "codex", how=how, text=HOOKED)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((home / "hooks").glob("*.fault.json")) == []


@pytest.mark.usefixtures("starts_processes")
def test_a_stream_that_does_not_wait_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    program = "from nexus.core import surroundings; surroundings.open_streams(); print(input())"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=reading, stdout=subprocess.PIPE) as process:
        until(lambda: os.get_blocking(reading))  # both ends of a description share the flag
        os.write(writing, b"after all\n")
        assert process.communicate()[0] == b"after all\n"


@pytest.mark.usefixtures("starts_processes")
def test_output_that_cannot_be_written_is_one_line(home: Path) -> None:
    done = started(home, "agents", "list", how=">/dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "[nexus] The output could not be written: No space left on device.\n",
    )


@pytest.mark.usefixtures("starts_processes")
def test_what_a_terminal_cannot_show_is_escaped(home: Path) -> None:
    ascii = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    assert started(home, "agents", "create", "Zoë").returncode == 0
    assert "Zo\\xeb" in started(home, "agents", "list", **ascii).stdout


# The home of the user


@pytest.fixture
def settled(kept_variables: None) -> Iterator[Any]:
    """Settle with these variables in place of this process's."""
    before = os.umask(0o022)

    def settle(**variables: str) -> dict[str, str]:
        for name in ("HOME", *outward.VARIABLES):
            os.environ.pop(name, None)
        os.environ.update(variables)
        surroundings.settle()
        return dict(os.environ)

    yield settle
    os.umask(before)


@pytest.mark.parametrize("variables", [{}, {"HOME": ""}, {"HOME": "somewhere"}], ids=str)
def test_a_home_that_is_none_is_the_users(settled: Any, variables: dict[str, str]) -> None:
    settled(**variables)
    assert Path.home() == Path(pwd.getpwuid(os.getuid()).pw_dir)


def test_a_user_that_the_system_does_not_know_has_the_home_of_containers(
    settled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    settled()
    assert Path.home() == Path("/")


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["status"], "DB_ERROR: Cannot create the store at "),
        (["doctor"], "DB_ERROR: There is no store at "),
        (["setup", "--check"], "is closed to this user"),
        (["setup", "--client", "codex", "--yes"], "is closed to this user"),
        (["backup"], "is closed to this user"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_home_that_is_closed_to_this_user_is_named(tmp_path: Path, command: list[str], said: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    environ = {**environment(tmp_path / "home"), "HOME": str(closed)}
    for name in ("NEXUS_HOME", "NEXUS_DATABASE_URL"):
        environ.pop(name, None)
    somebody = ("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "54321", "--cap-drop", "ALL")
    done = subprocess.run(
        [*somebody, sys.executable, "manage.py", *command], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert said in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_a_home_is_taken_as_it_is(settled: Any) -> None:
    assert settled(HOME="/nowhere")["HOME"] == "/nowhere"


@pytest.mark.parametrize(("mask", "left"), [(0o777, 0o077), (0o277, 0o077), (0o022, 0o022), (0o002, 0o002)])
def test_a_file_is_for_its_owner_to_use_at_least(settled: Any, mask: int, left: int) -> None:
    os.umask(mask)
    settled()
    assert os.umask(0o022) == left


# The way to other machines


def test_one_spelling_counts_for_every_library_and_program(settled: Any) -> None:
    said = settled(HTTPS_PROXY="http://proxy:3128", no_proxy="localhost", CURL_CA_BUNDLE="/ca.pem")
    assert said["https_proxy"] == said["HTTPS_PROXY"] == "http://proxy:3128" and said["NO_PROXY"] == "localhost"
    assert {said[name] for name in outward.CERTIFICATES} == {"/ca.pem"}
    assert "http_proxy" not in said


def test_a_variable_of_ones_own_stays(settled: Any) -> None:
    said = settled(SSL_CERT_FILE="/ca.pem", GIT_SSL_CAINFO="/gits.pem", https_proxy="http://a", HTTPS_PROXY="http://b")
    assert (said["GIT_SSL_CAINFO"], said["REQUESTS_CA_BUNDLE"]) == ("/gits.pem", "/ca.pem")
    assert (said["https_proxy"], said["HTTPS_PROXY"]) == ("http://a", "http://a")
    settled(HTTPS_PROXY="http://b", https_proxy="")
    outward.take("http://c", None)
    assert outward.proxy_of("https://github.com") is None, "an empty one means none"


@pytest.mark.usefixtures("starts_processes")
def test_gits_settings_count_where_there_is_no_variable(
    settled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "more").write_text("[http]\n sslCAInfo = ~/ca.pem\n")
    (tmp_path / ".gitconfig").write_text("[http]\n proxy = proxy:3128\n[include]\n path = more\n")
    settled(HOME=str(tmp_path))
    surroundings.take_git_settings()
    assert outward.proxy_of("https://github.com") == "http://proxy:3128"
    assert outward.certificates() == str(tmp_path / "ca.pem") == os.environ["REQUESTS_CA_BUNDLE"]
    settled(HOME=str(tmp_path), https_proxy="http://other:80", SSL_CERT_FILE="/ca.pem", no_proxy="internal.example")
    surroundings.take_git_settings()
    assert (outward.proxy_of("https://github.com"), outward.certificates()) == ("http://other:80", "/ca.pem")
    assert outward.proxy_of("https://git.internal.example") is None
