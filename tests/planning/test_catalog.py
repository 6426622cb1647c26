"""A catalog is loaded whole and unchanged, or refused with the file and its fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.operations.errors import NexusError
from nexus.planning.catalog import bundled, loader, manifest
from nexus.planning.catalog.bundled import DIRECTORY
from nexus.planning.catalog.loader import hash_of, load
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import ROOT
from tests.planning.catalogs import changed, copied

HOW = ["no_file_edit", "no_task_create", "no_task_update"]
CHECK = ["no_file_edit", "no_task_create"]
ROLES = {
    **dict.fromkeys(("architect", "designer", "postdoc", "strategist"), ("how", "persistent", "high", HOW)),
    **dict.fromkeys(("engineer", "writer"), ("do", "bounded", "standard", ["no_task_create"])),
    "researcher": ("do", "persistent", "standard", CHECK),
    **dict.fromkeys(("tester", "reviewer"), ("check", "ephemeral", "standard", CHECK)),
}


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return copied(tmp_path / "catalog")


def fault(catalog: Path) -> str:
    """What loading says of it."""
    with pytest.raises(NexusError) as refused:
        load(catalog)
    assert refused.value.code == "CONFIG_ERROR"
    assert str(refused.value.details["file"]) in refused.value.message
    return refused.value.message


def test_it_has_the_nine_roles_as_the_layout_s_guide_has_them() -> None:
    agents = load(DIRECTORY).manifest.agents
    assert {
        agent.id: (agent.category, agent.resume_tier, agent.model_tier, list(agent.capabilities)) for agent in agents
    } == ROLES


def test_it_has_a_skill_for_each_tag_and_two_that_only_people_start() -> None:
    skills = {skill.id: skill for skill in load(DIRECTORY).manifest.skills}
    assert {skill for skill, entry in skills.items() if entry.manual_only} == {"nx-init", "nx-setup"}
    assert {trigger for entry in skills.values() for trigger in entry.triggers} == {"plan", "run", "sync"}


def test_it_has_the_tags_of_the_vocabulary() -> None:
    tags = {tag.trigger: tag.variants for tag in load(DIRECTORY).manifest.vocabulary.tags}
    assert tags == {
        **dict.fromkeys(("[run]", "[sync]", "[d]", "[m]", "[m:gc]"), ()),
        "[plan]": ("auto",),
        "[rule]": ("*",),
    }


def test_its_prompts_fit_a_screen() -> None:
    catalog = load(DIRECTORY)
    for name, body in {**catalog.agent_bodies, **catalog.skill_bodies}.items():
        assert 20 <= body.count("\n") <= 40, name


def test_its_manifest_is_current() -> None:
    assert manifest.main(["--check"]) == 0


def test_its_manifest_is_stale_once_a_prompt_changes(catalog: Path) -> None:
    (catalog / "agents" / "writer" / "body.md").write_text("Write.\n")
    assert manifest.made(catalog) != (catalog / "manifest.json").read_text()


@pytest.mark.usefixtures("starts_processes")
def test_hooks_read_the_same_catalog_with_the_standard_library_alone() -> None:
    script = (
        "import sys\nfrom nexus.planning.catalog import bundled, capability_map, tags\n"
        "assert capability_map.blocks('tester', 'claude-code', 'Edit')\n"
        "assert [one.tag for one in tags.find_tags('[plan] x', bundled.tags())] == ['plan']\n"
        "assert '# Plan' in bundled.skill_body('nx-plan')\n"
        "assert not {'yaml', 'pydantic', 'django'} & set(sys.modules)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environ, timeout=START_SECONDS)
    whole = load(DIRECTORY).manifest
    assert bundled.blocked_classes() == whole.blocked_classes
    assert [tag._asdict() for tag in bundled.tags()] == [tag.model_dump() for tag in whole.vocabulary.tags]


@pytest.mark.parametrize("name", ["agents/tester/body.md", "skills/nx-run/body.md"])
def test_it_refuses_a_prompt_that_was_changed(catalog: Path, name: str) -> None:
    file = catalog / name
    file.write_text(file.read_text() + "And another thing.\n")
    assert "was changed" in fault(catalog)


@pytest.mark.parametrize("name", ["agents/tester/meta.yml", "skills/nx-run/meta.yml", "vocabulary/tags.yml"])
def test_it_refuses_a_file_that_contradicts_the_manifest(catalog: Path, name: str) -> None:
    file = catalog / name
    file.write_text(file.read_text().replace("id: ", "id: another-", 1))
    assert f"{name} says something else than manifest.json" in fault(catalog)


@pytest.mark.parametrize(
    "name", ["manifest.json", "agents/writer/body.md", "agents/writer/meta.yml", "vocabulary/categories.yml"]
)
@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "link out", "circle", "too large", "not UTF-8"])
def test_it_refuses_what_is_no_proper_file(catalog: Path, name: str, kind: str) -> None:
    file = catalog / name
    kept = file.read_bytes()
    file.unlink()
    if kind == "directory":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "link out":
        elsewhere = catalog.parent / "elsewhere"
        elsewhere.write_bytes(kept)
        file.symlink_to(elsewhere)
    elif kind == "circle":
        file.symlink_to(file)
    elif kind == "too large":
        file.write_bytes(kept + b" " * loader.LARGEST_MANIFEST)
    elif kind == "not UTF-8":
        file.write_bytes(b"\xff\xfe")
    assert name in fault(catalog)


def test_it_takes_a_catalog_behind_a_link(catalog: Path) -> None:
    link = catalog.parent / "link"
    link.symlink_to(catalog)
    assert load(link) == load(catalog)


def test_it_refuses_a_catalog_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be read" in fault(tmp_path / "nowhere")


def _agent(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["agents"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_agent(id="../../etc"), "agents.0.id"),
        (_agent(id="a/b"), "agents.0.id"),
        (_agent(id="Upper"), "agents.0.id"),
        (_agent(id=7), "agents.0.id"),
        (_agent(id="engineer"), "'engineer' is listed twice"),
        (_agent(more=1), "agents.0.more"),
        (_agent(model_tier="huge"), "agents.0.model_tier"),
        (_agent(category="why"), "category 'why', which"),
        (_agent(resume_tier="never"), "resume tier 'never', which"),
        (_agent(capabilities=["no_sleep"]), "capability 'no_sleep', which"),
        (_agent(body_hash="md5:1"), "agents.0.body_hash"),
        (lambda manifest: manifest.pop("skills"), "'skills': is required"),
        (lambda manifest: manifest["skills"][0].update(triggers=["x"]), "tag 'x', which"),
        (lambda manifest: manifest["vocabulary"]["tags"][0].update(skill="x"), "skill 'x', which"),
        (lambda manifest: manifest["vocabulary"]["tags"][0].update(trigger="plan"), "trigger"),
        (lambda manifest: manifest["vocabulary"]["tags"][3].pop("handler"), "has no handler"),
    ],
)
def test_it_refuses_a_manifest_that_is_not_of_the_layout(
    catalog: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    message = fault(changed(catalog, change))
    assert said in message and "manifest.json" in message


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000, '{"agents": NaN}'])
def test_it_refuses_a_manifest_that_is_none(catalog: Path, text: str) -> None:
    (catalog / "manifest.json").write_text(text)
    assert "manifest.json" in fault(catalog)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [1]\nb: *x", "alias"),
        ("id: a\nid: b", "twice"),
        ("a: !!python/object/apply:os.system ['true']", "well-formed"),
        ("a: [", "well-formed"),
        ("a: 2026-99-99", "well-formed"),
        ("[" * 100_000, "well-formed"),
        ("a: " + "9" * 10_000, "well-formed"),
    ],
)
def test_it_refuses_yaml_that_says_more_than_values(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "meta.yml").write_text(text)
    with pytest.raises(NexusError, match=said):
        loader.read_yaml(tmp_path.resolve(), "meta.yml")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=9,
)


@given(VALUES)
def test_it_reads_back_whatever_values_yaml_writes(value: Any) -> None:
    text = yaml.dump(value, Dumper=_Plain)
    assert yaml.load(text, Loader=loader._Loader) == value


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@given(st.binary(max_size=60))
def test_it_refuses_any_bytes_that_are_no_manifest_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    place = tmp_path_factory.mktemp("catalog")
    (place / "manifest.json").write_bytes(content)
    fault(place)


def test_a_hash_is_of_the_bytes(catalog: Path) -> None:
    """A catalog whose prompts end their lines in CR LF is what its manifest says, too."""
    body = (catalog / "agents" / "writer" / "body.md").read_bytes().replace(b"\n", b"\r\n")
    (catalog / "agents" / "writer" / "body.md").write_bytes(body)

    def rehash(manifest: dict[str, Any]) -> None:
        entry = next(agent for agent in manifest["agents"] if agent["id"] == "writer")
        entry["body_hash"] = hash_of(body)

    assert "\r\n" in load(changed(catalog, rehash)).agent_bodies["writer"]
    assert json.loads((catalog / "manifest.json").read_text())["agents"]
