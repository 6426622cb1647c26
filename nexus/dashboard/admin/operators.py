"""Operators' accounts, in the theme's forms."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from nexus.core.operations.caller import LOCAL_OPERATOR

# What the pages call Django's accounts. Migrations look at what a model was declared with, and see nothing of it.
User._meta.app_config.verbose_name = "Hub"
User._meta.verbose_name, User._meta.verbose_name_plural = "operator", "operators"

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class OperatorAdmin(UserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]  # the theme ships no types
    """An operator may do everything or is none: permissions and groups decide nothing here."""

    form = UserChangeForm
    add_form = UserCreationForm
    add_form_template = None  # Django's tells of options that are not here
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff")
    search_fields = ("username",)
    filter_horizontal = ()
    fieldsets = ((None, {"fields": ("username", "password", "is_active", "is_staff", "last_login")}),)
    add_fieldsets = ((None, {"fields": ("username", "password1", "password2")}),)
    readonly_fields = ("last_login",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """The account behind local requests is nobody's to log in with."""
        return super().get_queryset(request).exclude(username=LOCAL_OPERATOR)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        obj.is_staff = obj.is_staff or not change
        obj.is_superuser = obj.is_staff
        super().save_model(request, obj, form, change)
