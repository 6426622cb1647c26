import re

import django.db.models.deletion
from django.db import migrations, models

KINDS = {"read_file": "read", "grep": "read", "write_file": "write", "run": "run", "fetch": "network"}
LONGEST = 1000


def keep_what_is_always_allowed(apps, schema_editor):
    """Make a rule of each permission that was given always."""
    Question, PermissionRule = (apps.get_model("control", name) for name in ("Question", "PermissionRule"))
    for question in Question.objects.filter(always=True).order_by("question_id"):
        tool, _, rest = question.subject.partition(" ")
        kind = KINDS.get(tool, "other")
        texts = re.split(r" (?=/)", rest) if kind in ("read", "write") else [question.subject if kind == "other" else rest]
        if kind != "run" and not all(texts) or kind in ("read", "write") and not rest.startswith("/"):
            kind, texts = "other", [question.subject]
        for text in texts:
            pattern = re.sub(r"([\\*?])", r"\\\1", text)
            if len(pattern) <= LONGEST:
                PermissionRule.objects.create(
                    effect="allow", kind=kind, pattern=pattern, scope="agent", name=question.agent_id,
                    pool_agent=question.pool_agent, question=question, written_by=question.answered_by or "operator",
                    written_at=question.ended_at or question.asked_at,
                )


class Migration(migrations.Migration):
    """Rules of permissions take the place of questions that were allowed always."""

    dependencies = [
        ('control', '0013_outages'),
    ]

    operations = [
        migrations.CreateModel(
            name='PermissionRule',
            fields=[
                ('rule_id', models.BigAutoField(primary_key=True, serialize=False)),
                ('effect', models.CharField(choices=[('allow', 'Allow'), ('ask', 'Ask'), ('deny', 'Deny')], max_length=16)),
                ('kind', models.CharField(choices=[('read', 'Read'), ('write', 'Write'), ('run', 'Run'), ('network', 'Network'), ('other', 'Other')], max_length=16)),
                ('pattern', models.CharField(blank=True, max_length=1000)),
                ('scope', models.CharField(choices=[('agent', 'Agent'), ('runner', 'Runner'), ('project', 'Project'), ('pool', 'Pool')], max_length=16)),
                ('name', models.CharField(blank=True, max_length=4096)),
                ('written_by', models.CharField(max_length=255)),
                ('written_at', models.DateTimeField()),
                ('pool_agent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='rules', to='control.poolagent')),
                ('question', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='rules', to='control.question')),
            ],
            options={
                'db_table': 'pool_rules',
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('written_by', ''), _negated=True), name='pool_rules_written_by_not_empty'),
                    models.CheckConstraint(condition=models.Q(('effect__in', ['allow', 'ask', 'deny'])), name='pool_rules_effect_known'),
                    models.CheckConstraint(condition=models.Q(('kind__in', ['read', 'write', 'run', 'network', 'other'])), name='pool_rules_kind_known'),
                    models.CheckConstraint(condition=models.Q(('scope__in', ['agent', 'runner', 'project', 'pool'])), name='pool_rules_scope_known'),
                ],
            },
        ),
        migrations.RemoveIndex(
            model_name='question',
            name='pool_questions_always',
        ),
        migrations.AddField(
            model_name='question',
            name='action',
            field=models.CharField(choices=[('read', 'Read'), ('write', 'Write'), ('run', 'Run'), ('network', 'Network'), ('other', 'Other')], default='other', max_length=16),
        ),
        migrations.AddField(
            model_name='question',
            name='patterns',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='question',
            name='rule',
            field=models.PositiveBigIntegerField(null=True),
        ),
        migrations.AddConstraint(
            model_name='question',
            constraint=models.CheckConstraint(condition=models.Q(('action__in', ['read', 'write', 'run', 'network', 'other'])), name='pool_questions_action_known'),
        ),
        migrations.RunPython(keep_what_is_always_allowed, migrations.RunPython.noop),
    ]
