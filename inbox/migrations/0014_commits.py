from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('inbox', '0013_proofs'),
    ]

    operations = [
        AddColumn(
            model_name='delivery',
            name='commits',
            field=models.JSONField(null=True),
        ),
    ]
