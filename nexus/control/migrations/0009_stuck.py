from django.db import migrations, models


class Migration(migrations.Migration):
    """A run that does not go on is stuck."""

    dependencies = [
        ('control', '0008_put_back'),
    ]

    operations = [
        migrations.AlterField(
            model_name='turn',
            name='cause',
            field=models.CharField(choices=[('refused', 'Refused'), ('stuck', 'Stuck')], max_length=16, null=True),
        ),
    ]
