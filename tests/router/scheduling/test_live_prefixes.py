"""What is known of the prefixes of sequences that run or wait."""

from penstock.router.scheduling.live_prefixes import LivePrefixes


class Prompt(list[int]):
    """Counts what is read of it."""

    num_read = 0

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        self.num_read += 1
        return super().__getitem__(place)


def test_full_blocks_that_some_sequence_has_from_the_start() -> None:
    prefixes = LivePrefixes(4)
    prefixes.add(1, "", [*range(10)])
    prefixes.add(2, "", [*range(4), 99, 99, 99, 99])
    assert prefixes.match("", [*range(12)]) == 2
    assert prefixes.match("", [*range(7)]) == 1
    assert prefixes.match("adapter", [*range(12)]) == 0
    assert prefixes.match("", [*range(4, 12)]) == 0
    prefixes.remove(1)
    assert prefixes.match("", [*range(12)]) == 1
    prefixes.remove(2)
    assert prefixes.match("", [*range(12)]) == 0


def test_no_more_of_a_prompt_is_read_than_decides() -> None:
    """It is asked of each group for each request, and prompts may be long."""
    prefixes = LivePrefixes(4)
    prefixes.add(1, "", [*range(100)])
    prompt = Prompt([0, 1, 2, 3, *range(1000)])
    assert prefixes.match("", prompt) == 1
    assert prompt.num_read == 2
