from django.db import migrations, models


class Migration(migrations.Migration):
    """A run that a fault of its provider ended is queued again, to be started later."""

    dependencies = [
        ('control', '0007_run_costs'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='due_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='turn',
            name='put_back',
            field=models.PositiveSmallIntegerField(default=0),
        ),
    ]
