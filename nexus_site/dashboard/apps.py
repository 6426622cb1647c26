from django.contrib.admin.apps import AdminConfig


class NexusAdminConfig(AdminConfig):
    default_site = "nexus_site.dashboard.site.NexusAdminSite"
