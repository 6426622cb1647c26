from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('inbox', '0012_expectations'),
    ]

    operations = [
        AddColumn(
            model_name='message',
            name='proof',
            field=models.CharField(max_length=16, null=True),
        ),
    ]
