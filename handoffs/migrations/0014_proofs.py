from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('handoffs', '0013_checks'),
    ]

    operations = [
        AddColumn(
            model_name='handoff',
            name='proof',
            field=models.CharField(max_length=16, null=True),
        ),
    ]
