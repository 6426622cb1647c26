"""The catalog has the roles, skills and tags of the layout's guide, and hooks read it without Django."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nexus.planning.catalog import bundled
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import ROOT

HOW = ("no_file_edit", "no_task_create", "no_task_update")
CHECK = ("no_file_edit", "no_task_create")
ROLES = {
    **dict.fromkeys(("architect", "designer", "postdoc", "strategist"), ("how", "persistent", "high", HOW)),
    **dict.fromkeys(("engineer", "writer"), ("do", "bounded", "standard", ("no_task_create",))),
    "researcher": ("do", "persistent", "standard", CHECK),
    **dict.fromkeys(("tester", "reviewer"), ("check", "ephemeral", "standard", CHECK)),
}
SKILLS = {entry["id"]: entry for entry in bundled.manifest()["skills"]}


def test_it_has_the_nine_roles_as_the_layout_s_guide_has_them() -> None:
    agents = bundled.agents()
    found = {
        name: (agent.category, agent.resume_tier, agent.model_tier, agent.capabilities)
        for name, agent in agents.items()
    }
    assert found == ROLES
    assert set(bundled.blocked_classes()) == {*HOW, "no_shell_exec"}


def test_it_has_a_skill_for_each_tag_and_two_that_only_people_start() -> None:
    assert {skill for skill, entry in SKILLS.items() if entry.get("manual_only")} == {"nx-init", "nx-setup"}
    assert {trigger for entry in SKILLS.values() for trigger in entry.get("triggers", ())} == {"plan", "run", "sync"}


def test_it_has_the_tags_of_the_vocabulary() -> None:
    assert {tag.trigger: tag.variants for tag in bundled.tags()} == {
        **dict.fromkeys(("[run]", "[sync]", "[d]", "[m]", "[m:gc]"), ()),
        "[plan]": ("auto",),
        "[rule]": ("*",),
    }
    assert {tag.skill for tag in bundled.tags() if tag.type == "skill"} <= set(SKILLS)


def test_its_prompts_fit_a_screen() -> None:
    bodies = {name: agent.body for name, agent in bundled.agents().items()}
    bodies |= {skill: bundled.skill_body(skill) for skill in SKILLS}
    for name, body in bodies.items():
        assert 20 <= body.count("\n") <= 41, name


@pytest.mark.usefixtures("starts_processes")
def test_hooks_read_it_with_the_standard_library_alone() -> None:
    script = (
        "import sys\nfrom nexus.planning.catalog import bundled, capability_map, tags\n"
        "assert capability_map.blocks('tester', 'claude-code', 'Edit')\n"
        "assert [one.tag for one in tags.find_tags('[plan] x', bundled.tags())] == ['plan']\n"
        "assert '# Plan' in bundled.skill_body('nx-plan')\n"
        "assert not {'yaml', 'pydantic', 'django'} & set(sys.modules)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environ, timeout=START_SECONDS)
