"""Forms of the page of connected forges."""

from __future__ import annotations

from typing import Any

from django import forms

from nexus.hooks.forms import workspace_choices
from nexus.web.forms import OperationForm


class ForgeForm(OperationForm):
    """A repository to connect. The operation checks the rules."""

    kind = forms.ChoiceField(label="Forge", choices=[("github", "GitHub"), ("gitlab", "GitLab"), ("git", "git remote")])
    repository = forms.CharField(
        label="Repository", widget=forms.TextInput(attrs={"placeholder": "owner/repository, or the remote's address"})
    )
    project_root = forms.ChoiceField(label="Workspace")
    token = forms.CharField(
        required=False, label="Token; none for a git remote", widget=forms.PasswordInput(attrs={"autocomplete": "off"})
    )
    url = forms.CharField(required=False, label="Address of the API; none: github.com or gitlab.com")
    label = forms.CharField(required=False, label="Take issues with the label")
    assignee = forms.CharField(required=False, label="Take issues assigned to")
    base = forms.CharField(required=False, label="Branch of pull requests, or to watch; none: the repository's")

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        where = self.fields["project_root"]
        assert isinstance(where, forms.ChoiceField)
        where.choices = workspace_choices()[1:]


class ForgeActForm(forms.Form):
    forge_id = forms.CharField()
