from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("inbox", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["status", "read_at"], name="deliveries_prunable"),
        ),
    ]
