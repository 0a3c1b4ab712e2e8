"""Nobody outside can make a process grow by inventing label values; names are the conventions'."""

import re
from pathlib import Path

from pipeline import metrics

ROOT = Path(__file__).parents[2]


def test_label_values_beyond_the_limit_are_other() -> None:
    shown = [metrics.capped("tenant-test", f"t{number}", limit=3) for number in range(10)]
    assert shown == ["t0", "t1", "t2"] + ["other"] * 7
    assert metrics.capped("tenant-test", "t1", limit=3) == "t1"


def test_gen_ai_histograms_have_the_conventions_buckets() -> None:
    metrics.time_to_first_token.labels("chat", "m").observe(0.03)
    text = metrics.render().decode()
    assert 'gen_ai_server_time_to_first_token_seconds_bucket{gen_ai_operation_name="chat"' in text
    assert 'le="0.04"' in text
    assert 'le="10.0"' in text


def test_counters_end_in_total() -> None:
    metrics.refusals.labels("quota_exceeded").inc()
    metrics.dead_letters.labels("ingress", "unreadable").inc()
    text = metrics.render().decode()
    assert 'headrace_refusals_total{code="quota_exceeded"}' in text
    assert 'headrace_dead_letters_total{reason="unreadable",stage="ingress"}' in text


def test_every_metric_that_the_docs_name_exists() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    named = set(re.findall(r"`((?:headrace|gen_ai)_[a-z_]+?)(?:_total)?(?:\{[a-z,]*\})?`", page))
    known = {family.name for family in metrics.REGISTRY.collect()}
    assert len(named) > 15
    assert named <= known


def test_every_metric_is_set_somewhere() -> None:
    code = "".join(
        file.read_text()
        for folder in ("pipeline", "stages", "workers")
        for file in (ROOT / folder).rglob("*.py")
    )
    declared = re.findall(
        r"^(\w+) = _(?:counter|gauge|histogram)", (ROOT / "pipeline/metrics.py").read_text(), re.M
    )
    assert [name for name in declared if not re.search(rf"metrics\.{name}\b", code)] == []
