"""A server whose model makes vectors or scores tells series under TEI's names."""

import re

from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.tei import NAMES
from tests.fakes import LIMITS


def told(has_tei: bool) -> str:
    metrics = Metrics(LIMITS, has_tei=has_tei)
    metrics.requested()
    metrics.accepted_text(12, 0.001)
    metrics.pooled(0.01, 0.002, 0.003, 0.005)
    metrics.succeeded()
    return metrics.exposition().decode()


def test_every_name_is_told_as_tei_writes_it() -> None:
    text = told(has_tei=True)
    assert {*NAMES.values()} <= {*re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)}
    for line in ("te_request_count 1.0", "te_request_success 1.0", "te_request_input_length_sum 12.0",
                 "te_request_queue_duration_sum 0.003", "te_request_tokenization_duration_count 1.0",
                 'te_request_failure{err="overloaded"} 0.0'):
        assert f"\n{line}\n" in text


def test_other_servers_have_none_of_them() -> None:
    assert "te_request" not in told(has_tei=False)
