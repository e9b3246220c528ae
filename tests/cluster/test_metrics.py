"""What is read from routers' metrics."""

from penstock.cluster.metrics import load_of
from penstock.cluster.scaling import Load


def test_a_routers_own_metrics_tell():
    assert load_of("# HELP tgi_queue_size x\ntgi_queue_size 3.0\ntgi_batch_current_size 5.0\n") == Load(3, 5)


def test_metrics_that_do_not_tell():
    assert load_of("tgi_queue_size 3.0\ntgi_queue_size_other 4.0\n") is None
