from django.db import migrations, models


class Migration(migrations.Migration):
    """The constraint anew: on PostgreSQL it went with the index of the column `agent`, when 0002 took that away."""

    dependencies = [("control", "0002_what_long_lives_are_read_by")]

    operations = [
        migrations.RemoveConstraint(model_name="turn", name="pool_turns_one_at_a_time"),
        migrations.AddConstraint(
            model_name="turn",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "running")), fields=("agent",), name="pool_turns_one_at_a_time"
            ),
        ),
    ]
