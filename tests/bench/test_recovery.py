"""What the benchmark of recovery reads in a server's log."""

from penstock.bench.server.recovery import phases

LINE = "2026-11-22T19:27:43.425683Z    INFO shard-{}: ready in 9 s: Python 0.{}5, imports {}.5, first steps 0.36\n"


def test_the_phases_of_new_shards() -> None:
    log = "".join(LINE.format(rank, number, number) for number in (9, 1, 3, 2) for rank in (1, 0)) + "shard-0: more\n"
    assert phases(log) == {"Python": 0.25, "imports": 2.5, "first steps": 0.36}
