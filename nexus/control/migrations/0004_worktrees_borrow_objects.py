from django.db import migrations, models


class Migration(migrations.Migration):
    """A worktree is a repository of its own, which borrows objects from these directories."""

    dependencies = [("control", "0003_one_turn_at_a_time_on_postgresql")]

    operations = [
        migrations.AddField(
            model_name="poolworktree", name="borrowed", field=models.JSONField(default=list)
        ),
    ]
