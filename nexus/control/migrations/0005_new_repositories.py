from django.db import migrations, models


class Migration(migrations.Migration):
    """An agent's page shows which new git repositories were set aside."""

    dependencies = [("control", "0004_worktrees_borrow_objects")]

    operations = [
        migrations.AddField(model_name="poolagent", name="new_repositories", field=models.JSONField(null=True)),
    ]
