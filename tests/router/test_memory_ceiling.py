"""The most memory that the router announces."""

import re

import psutil

from penstock.router.memory_ceiling import OTHER_BYTES, memory_ceiling
from penstock.router.text.known_parts import MOST_BYTES
from tests.fakes import FACTS, LIMITS

MIB = 1 << 20


def test_it_is_the_sum_of_what_each_purpose_takes() -> None:
    said, others = memory_ceiling(LIMITS, FACTS.num_blocks, 100 * MIB).split("; ")
    [most, used, cached, requests, parts, bodies, other] = map(int, re.findall(r"\d+", said))
    assert 0 <= used + cached + requests + parts + bodies + other - most <= 6
    assert abs(used - psutil.Process().memory_info().rss / MIB) < 16
    assert cached == 1, "256 blocks"
    assert requests == 128 * (64 + 512) // 1024
    assert parts == MOST_BYTES // MIB
    assert other == OTHER_BYTES // MIB
    assert bodies == -(-8 * 4 * (2_000_000 + (1 << 18)) // MIB)
    assert others == "while long texts are tokenised, at most 100 MiB in other processes"
    assert "; " not in memory_ceiling(LIMITS, FACTS.num_blocks)


def test_a_process_that_only_answers_clients_finds_nothing_cached() -> None:
    said = memory_ceiling(LIMITS, 0, MIB)
    most, *parts = map(int, re.findall(r"(\d+)(?= MiB of memory| of program| for)", said))
    assert "cached" not in said
    assert 0 <= sum(parts) - most <= 6


def test_lines_of_batches_are_requests_beside_those_of_clients() -> None:
    said = memory_ceiling(LIMITS, 0, num_lines=2 * 128)
    [lines] = map(int, re.findall(r"(\d+) for lines of batches", said))
    assert lines == 2 * 128 * (64 + 512) // 1024 + 8 * 8
    assert "128 for files" in said
    [responses] = map(int, re.findall(r"(\d+) for responses of the background", said))
    assert responses == -(-16 * ((64 << 10) + 1024 * 512 + 8 * LIMITS.payload_limit) // MIB)
    said = memory_ceiling(LIMITS, 0, num_lines=1)
    [lines] = map(int, re.findall(r"(\d+) for lines of batches", said))
    assert lines == 128 * (64 + 512) // 1024 + 8 * 8, "one line may yield as many answers as a request"
    assert "lines" not in memory_ceiling(LIMITS, 0)
