from django.db import migrations, models


class Migration(migrations.Migration):
    """The tokens that files with instructions take of an agent's context."""

    dependencies = [
        ('control', '0009_stuck'),
    ]

    operations = [
        migrations.AddField(
            model_name='poolagent',
            name='instruction_tokens',
            field=models.PositiveIntegerField(default=0),
        ),
    ]
