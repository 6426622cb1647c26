from django.db import migrations, models


class Migration(migrations.Migration):
    """An outage is confirmed by a second agent. Those of before are met again if they are not over."""

    dependencies = [
        ('control', '0021_taken_over'),
    ]

    operations = [
        migrations.AddField(
            model_name='poolagent',
            name='may_end_server',
            field=models.BooleanField(default=False),
        ),
    ]
