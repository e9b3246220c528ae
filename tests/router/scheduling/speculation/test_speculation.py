"""How many guesses a step verifies, by what they are likely to yield and what tokens have cost."""

import pytest

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.guesser import (
    HOPE,
    PROPOSED,
    Alternative,
    DraftedGuesser,
    LookupGuesser,
    common_share,
)
from penstock.router.scheduling.speculation.speculation import Speculation, sits_out
from penstock.router.scheduling.speculation.step_cost import StepCost


class Sure:
    """Guesses the same tokens for ever, which are right as often as it says."""

    def __init__(self, share: float, number: int = 99, token_id: int = 7) -> None:
        self.token_id = token_id
        self.share = share
        self.number = number
        self.other: float | None = None

    def note(self, token_id: int) -> None: ...

    def force(self, token_ids: object) -> None: ...

    def guess(self, number: int) -> tuple[list[int], float]:
        return [self.token_id] * min(number, self.number), self.share

    def alternative(self, number: int) -> Alternative | None:
        return None if self.other is None else Alternative([self.token_id] * 2 + [9] * (number - 2), 2, self.other)

    def judge(self, number: int, num_right: int) -> None: ...


def running(
    id: int, share: float | None, in_flight: int = 0, max_length: int = 100, token_id: int = 7
) -> Sequence:
    return Sequence(
        id=id, tokens=[1, 2, 3], prompt_length=2, max_length=max_length, sampling=Sampling(), status=Status.RUNNING,
        guesser=None if share is None else Sure(share, token_id=token_id), in_flight=in_flight, promised=in_flight,
        computed=2, prefill_end=2)


def speculation(cost_of: float, most: int = 8, samples: int = 64) -> Speculation:
    """Where a step takes 1 s and `cost_of` seconds for each token."""
    made = Speculation(most, samples)
    for num_tokens in (1, 2, 4, 8, 16, 32, 64, 128):
        made.cost.observe(num_tokens, 1 + cost_of * num_tokens)
    return made


def test_all_is_guessed_where_tokens_cost_nothing() -> None:
    assert speculation(0.0).choose([running(1, 0.9)], 50) == {1: (7,) * 8}


def test_nothing_is_guessed_where_tokens_cost_what_they_yield() -> None:
    """Of a processor that multiplies one row at a time."""
    assert speculation(100.0).choose([running(1, 0.9)], 50) == {}
    assert speculation(0.0).choose([running(1, None)], 50) == {}


def test_the_fewer_the_surer_they_must_be() -> None:
    made = speculation(0.2)
    numbers = [len(made.choose([running(1, share)], 50).get(1, ())) for share in (0.2, 0.5, 0.7, 0.9, 0.99)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0 < numbers[2] < numbers[4]


def test_a_large_batch_guesses_less() -> None:
    made = speculation(0.2)
    numbers = [sum(map(len, made.choose([running(id, 0.7) for id in range(rows)], 64).values())) / rows
               for rows in (1, 4, 16, 48)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] >= 2 > numbers[-1]


def test_the_surest_come_first() -> None:
    chosen = speculation(0.3).choose([running(1, 0.5), running(2, 0.95)], 50)
    assert len(chosen[2]) > len(chosen.get(1, ()))


def test_limits_are_kept() -> None:
    made = speculation(0.0, samples=10)
    assert sum(map(len, made.choose([running(1, 0.9), running(2, 0.9)], 50).values())) == 8
    assert sum(map(len, made.choose([running(1, 0.9), running(2, 0.9)], 3).values())) == 3
    assert made.choose([running(1, 0.9)], -2) == {}
    assert made.choose([running(1, 0.9, max_length=6)], 50) == {1: (7, 7)}, "one more token is sampled after them"
    assert made.choose([running(1, 0.9, max_length=4)], 50) == {}


def test_who_waits_for_its_step_expects_more() -> None:
    """A sequence sits a step out only for guesses that make up for it."""
    made = speculation(0.01)
    assert made.choose([running(1, 0.9, in_flight=1), running(2, None, in_flight=1)], 50).keys() == {1}
    assert made.choose([running(1, 0.45, in_flight=1), running(2, None, in_flight=1)], 50) == {}
    assert made.choose([running(1, 0.45, in_flight=1)], 50).keys() == {1}, "nobody goes on without it"


def test_a_suspect_guesses_nothing() -> None:
    suspect = running(1, 0.9)
    suspect.record.cleared_at = 9
    assert speculation(0.0).choose([suspect], 50) == {}


def test_a_bad_estimate_is_tried_again() -> None:
    """The first step with guesses was held up; what it cost is no reason to guess nothing for ever."""
    made = Speculation(8, 64)
    made.cost.observe(1, 0.01)
    made.cost.observe(9, 0.5)
    num_guessing = 0
    for _ in range(500):
        guesses = made.choose([running(1, 0.95)], 50).get(1, ())
        num_guessing += bool(guesses)
        made.cost.observe(1 + len(guesses), 0.01 + 0.0001 * len(guesses))
    assert num_guessing > 100
    assert not any(made.choose([running(1, 0.2)], 50) for _ in range(200)), "poor guesses are not tried"


def test_prompts_sample_too() -> None:
    """The shards have memory for so many sampled tokens a step, whoever samples them."""
    made = speculation(0.0, samples=12)
    assert sum(map(len, made.choose([running(1, 0.9), running(2, 0.9)], 50, 6, 40).values())) == 4
    assert made.choose([running(1, 0.9)], 50, 20, 40) == {}


def forked(cost_of: float, share: float, other: float, number: int = 6, has_grammar: bool = False) -> list[list[int]]:
    """The forks beside a row with `number` guesses; `other` is how likely theirs are where they part."""
    sequence = running(1, share)
    sequence.has_grammar = has_grammar
    assert isinstance(sequence.guesser, Sure)
    sequence.guesser.other = other
    row = Row(0, 2, (3, *[7] * number), num_drafts=number)
    return [other.token_ids for _, other in speculation(cost_of).choose_forks([(sequence, row)], 50)]


def test_a_fork_must_yield_more_than_its_tokens_cost() -> None:
    guesses = [[7, 7, 9, 9, 9, 9]]
    assert forked(0.0, 0.6, 0.5) == guesses
    assert forked(0.0, 0.6, 0.01) == forked(0.2, 0.6, 0.5) == []
    assert forked(0.02, 0.9, 0.9) == guesses, "what others spend a step on, it has in this one"


def test_a_fork_has_a_place_in_the_step() -> None:
    sequence = running(1, 0.8)
    assert isinstance(sequence.guesser, Sure)
    sequence.guesser.other = 0.9
    rows = [(sequence, Row(0, 2, (3, 7, 7, 7), num_drafts=3))]
    assert len(speculation(0.0).choose_forks(rows, 4)) == 1
    assert speculation(0.0).choose_forks(rows, 3) == []
    assert speculation(0.0, samples=7).choose_forks(rows, 50) == [], "its samples have no memory"
    assert forked(0.0, 0.8, 0.9, has_grammar=True) == []


def test_what_is_right_is_guessed_with_more_trust() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9] * 3
    guesser = LookupGuesser(tokens)
    shares = []
    for token_id in [1, 2, 3, 4, 5, 6, 7, 8]:
        tokens.append(token_id)
        guesser.note(token_id)
        shares.append(guesser.guess(3)[1])
    assert shares == sorted(shares)
    assert shares[-1] > 0.75
    assert guesser.guess(3)[0] == [9, 1, 2]
    guesser.force([44, 45])
    assert guesser.guess(3)[0] == [9, 1, 2], "what has been right more often goes first"
    for token_id in (60, 61, 62, 63, 64, 65):
        tokens.append(token_id)
        guesser.note(token_id)
        guesser.force([token_id + 1, 45])
    assert guesser.guess(3)[0] == [66, 45]


def test_the_cost_of_a_step_lies_between_those_known() -> None:
    cost = StepCost()
    assert cost.seconds(3) > cost.seconds(2) > 0
    cost.observe(1, 1.0)
    assert cost.seconds(1) == 1.0 < cost.seconds(2) < 2.0, "a token more costs less than the first, so it is tried"
    cost.observe(5, 3.0)
    assert cost.seconds(3) == pytest.approx(2.0)
    for _ in range(100):
        cost.observe(5, 2.0)
    assert cost.seconds(3) == pytest.approx(1.5)
    cost.observe(3, 4.0)
    assert cost.seconds(4) >= cost.seconds(3), "more tokens never cost less"


def proposals(number: int) -> tuple[int, ...]:
    return (PROPOSED,) * number


def after_rounds(made: Speculation, seconds: float) -> Speculation:
    """Where a round of proposals takes so long."""
    for number in (1, 8):
        plan = Plan(0, (Row(0, 4, from_last_sample=True, num_proposals=2, is_decode=True),) * number)
        cost_ns, draft_ns = round(1e9 * made.cost.seconds(plan.num_tokens)), round(2e9 * seconds)
        made.observe(plan, StepResult(0, (), cost_ns, 0, draft_ns))
    return made


def test_proposals_are_as_many_as_rounds_are_cheap() -> None:
    numbers = [len(after_rounds(speculation(0.01), seconds).choose(
        [running(1, 0.8, token_id=PROPOSED)], 50).get(1, ())) for seconds in (0.0, 0.1, 0.3, 3.0)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] == 8
    assert 0 < numbers[2] < numbers[1] < 8
    assert numbers[3] == 0


def test_a_round_is_shared() -> None:
    """What is too dear while others only wait for it pays when they take part."""
    made = after_rounds(speculation(0.0, most=1), 0.4)
    assert made.choose([running(1, 0.8, token_id=PROPOSED), running(2, None), running(3, None)], 50) == {}
    chosen = made.choose([running(id, 0.8, token_id=PROPOSED) for id in (1, 2, 3)], 50)
    assert chosen == dict.fromkeys((1, 2, 3), proposals(1))


def test_proposals_do_not_wait_for_the_last_token() -> None:
    sequence = running(1, 0.9, in_flight=1, token_id=PROPOSED)
    chosen = speculation(0.0).choose([sequence], 50)
    assert chosen == {1: proposals(8)}
    assert not sits_out(sequence, chosen[1])
    assert sits_out(sequence, (7, 7))


def test_the_draft_model_is_asked_where_nothing_likelier_was_found() -> None:
    tokens = list(range(40, 60))
    guesser = DraftedGuesser(tokens, context_length=26)

    def add(token_id: int) -> None:
        tokens.append(token_id)
        guesser.note(token_id)

    add(60)
    assert guesser.guess(3) == ([PROPOSED] * 3, HOPE)
    guesser.judge(3, 0)
    add(61)
    assert guesser.guess(3)[1] < HOPE, "what was wrong is trusted less"
    low = guesser.guess(3)[1]
    add(62)
    assert low < guesser.guess(3)[1] < HOPE, "but it is tried again"
    guesser.judge(3, 3)
    for room in (2, 1, 0):
        add(80 + room)
        assert guesser.guess(9)[0] == [PROPOSED] * room, "the draft model takes no more tokens than its context"


def test_what_was_there_before_goes_first_if_it_is_likelier() -> None:
    tokens = [1, 2, 3, 4, 5, 1, 2, 3]
    guesser = DraftedGuesser(tokens, context_length=64)
    for token_id in (4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5):
        tokens.append(token_id)
        guesser.note(token_id)
    assert guesser.guess(3)[0] == [1, 2, 3]
    assert guesser.guess(3)[1] > HOPE


def test_a_sequence_begins_with_what_others_found() -> None:
    common = common_share()
    for tokens in ([1, 2, 3, index] for index in range(40)):
        DraftedGuesser(tokens, 64, common).judge(4, 0)
    found, share = DraftedGuesser([1, 2, 3], 64, common).guess(2)
    assert found == [PROPOSED] * 2
    assert share < 0.5 * HOPE


def test_proposals_must_gain_more_than_what_is_known() -> None:
    """A step a sixth better is worth it for tokens that nothing has to propose."""
    dear = [(token_id, after_rounds(speculation(1.2, most=1), 0.0).choose([running(1, 0.8, token_id=token_id)], 50))
            for token_id in (7, PROPOSED)]
    assert dear == [(7, {1: (7,)}), (PROPOSED, {})]


def test_nothing_is_proposed_while_others_are_verified() -> None:
    made = after_rounds(speculation(0.0), 0.0)
    asking = [running(1, 0.8, token_id=PROPOSED), running(2, 0.8)]
    assert made.choose(asking, 50) == {1: proposals(8), 2: (7,) * 8}
    held = running(3, None, in_flight=1)
    held.is_verifying = True
    assert made.choose([*asking, held], 50).keys() <= {2}


def test_who_asks_alone_must_expect_what_the_step_that_it_sits_out_would_yield() -> None:
    made = after_rounds(speculation(0.0, most=1), 0.0)
    assert made.choose([running(1, 0.8, token_id=PROPOSED), running(2, None)], 50) == {}
    assert made.choose([running(1, 0.8, token_id=PROPOSED)], 50) == {1: proposals(1)}
