from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('inbox', '0010_traces'),
    ]

    operations = [
        AddColumn(
            model_name='delivery',
            name='noticed_at',
            field=models.DateTimeField(null=True),
        ),
        AddColumn(
            model_name='delivery',
            name='noticed_by',
            field=models.CharField(max_length=255, null=True),
        ),
        AddColumn(
            model_name='delivery',
            name='delivered_to',
            field=models.CharField(max_length=255, null=True),
        ),
        AddColumn(
            model_name='delivery',
            name='read_by',
            field=models.CharField(max_length=255, null=True),
        ),
    ]
