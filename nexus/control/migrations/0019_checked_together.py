from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('control', '0018_reviews'),
    ]

    operations = [
        migrations.AddField(
            model_name='worktreemerge',
            name='check_seconds',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='worktreemerge',
            name='checked_with',
            field=models.CharField(max_length=255, null=True),
        ),
    ]
