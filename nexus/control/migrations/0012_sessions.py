from django.db import migrations, models


class Migration(migrations.Migration):
    """What an agent process told of its session, and the options that an operator chose."""

    dependencies = [
        ('control', '0011_budgets'),
    ]

    operations = [
        migrations.AddField(
            model_name='poolagent',
            name='session',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='poolagent',
            name='options',
            field=models.JSONField(default=dict),
        ),
    ]
