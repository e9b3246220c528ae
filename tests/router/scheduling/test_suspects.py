"""A sequence that kills the group is found by bisection, while all others go on."""

import math
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Forgotten, Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.speculation.guesser import LookupGuesser
from penstock.router.scheduling.suspects import MAX_PARDONS, Suspects
from tests.router.scheduling.small_schedulers import answer, make_scheduler, make_sequence, planned, spans, step


def lose_a_step(scheduler: Scheduler) -> tuple[Plan, Forgotten]:
    """The group dies in the next step."""
    return planned(scheduler), scheduler.forget_all()


def sequence_ids(plan: Plan) -> list[int]:
    """Who begins to run with this plan."""
    return [admission.sequence_id for admission in plan.admitted]


def with_sequences(number: int) -> Scheduler:
    scheduler = make_scheduler(max_slots=8, max_step_tokens=40)
    for id in range(1, number + 1):
        scheduler.add(make_sequence(id))
    return scheduler


def test_all_return_together_after_one_death_and_new_ones_with_them() -> None:
    scheduler = with_sequences(4)
    lose_a_step(scheduler)
    scheduler.add(make_sequence(5))
    assert sequence_ids(planned(scheduler)) == [1, 2, 3, 4, 5]
    assert scheduler.plan() is not None, "the next step is planned ahead, as always"


def test_those_that_die_again_are_halved_and_all_others_go_on() -> None:
    scheduler = with_sequences(4)
    lose_a_step(scheduler)
    scheduler.add(make_sequence(5))
    lose_a_step(scheduler)
    scheduler.add(make_sequence(6))
    plan, _ = step(scheduler, 11, 21, 61)
    assert sequence_ids(plan) == [1, 2, 6], "3 and 4 wait for the trial of 1 and 2, and so does 5; nobody suspects 6"
    assert sequence_ids(step(scheduler, 12, 22, 62, 31, 41)[0]) == [3, 4], "1 and 2 were answered"
    assert sequence_ids(planned(scheduler)) == [5], "and then 3 and 4"


def test_who_dies_in_the_first_half_is_halved_again_until_one_runs_alone() -> None:
    scheduler = with_sequences(4)
    ran = [sequence_ids(lose_a_step(scheduler)[0]) for _ in range(5)]
    assert ran == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2], [1], [1]]
    scheduler.add(make_sequence(5))
    assert lose_a_step(scheduler)[1] == Forgotten(0, (1,))
    assert sequence_ids(step(scheduler, 21)[0]) == [2], "2 is still under suspicion, and was to run alone"
    assert sequence_ids(step(scheduler, 22, 31, 41, 51)[0]) == [3, 4, 5]


def test_a_suspect_is_cleared_once_all_that_was_in_flight_is_repeated() -> None:
    """Two tokens of 1 were in flight; the group dies again after the first of them is repeated."""
    scheduler = with_sequences(2)
    step(scheduler, 11, 21)
    planned(scheduler)
    planned(scheduler)
    scheduler.forget_all()
    step(scheduler, 12, 22)
    lose_a_step(scheduler)
    assert [sequence_ids(step(scheduler, token)[0]) for token in (13, 23)] == [[1], [2]], "each runs alone"


def test_the_prompt_of_a_suspect_alone_is_computed_chunk_by_chunk() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, 40))
    lose_a_step(scheduler)
    lose_a_step(scheduler)
    scheduler.add(make_sequence(2))
    plans = []
    for tokens in [(), (), (11,)]:
        plans.append(planned(scheduler))
        assert scheduler.plan() is None, "nothing else is in flight with a suspect that runs alone"
        scheduler.commit(answer(plans[-1], *tokens))
    assert [spans(plan) for plan in plans] == [[(0, 0, 16)], [(0, 16, 16)], [(0, 32, 8)]]
    assert spans(planned(scheduler)) == [(0, 40, 1), (1, 0, 4)]


def test_three_deaths_alone_give_a_sequence_up() -> None:
    scheduler = with_sequences(1)
    assert [lose_a_step(scheduler)[1].given_up for _ in range(3)] == [(), (), (1,)]
    assert scheduler.plan() is None


def test_deaths_in_company_do_not_count() -> None:
    scheduler = with_sequences(1)
    lose_a_step(scheduler)
    scheduler.add(make_sequence(2))
    lose_a_step(scheduler)
    assert [lose_a_step(scheduler)[1].given_up for _ in range(3)] == [(), (), (1,)]


def test_an_answer_ends_the_count() -> None:
    """Twice dead alone, answered, twice dead again: it takes three in a row."""
    scheduler = with_sequences(1)
    for token in (11, 12):
        assert [lose_a_step(scheduler)[1].given_up for _ in range(2)] == [(), ()]
        step(scheduler, token)
    assert [lose_a_step(scheduler)[1].given_up for _ in range(3)] == [(), (), (1,)]


def test_who_is_named_by_no_step_in_flight_is_no_suspect() -> None:
    """The result of 1 is back, and nothing more is planned; 2 dies with its next token."""
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, confirmed_only=True))
    scheduler.add(make_sequence(2))
    first = planned(scheduler)
    second = planned(scheduler)
    assert spans(second) == [(1, 4, 1)]
    scheduler.commit(answer(first, 11, 21))
    scheduler.forget_all()
    assert [s.id for s in scheduler._sequences.values() if s.is_suspect] == [2]


def test_several_steps_in_flight_make_one_death() -> None:
    scheduler = with_sequences(1)
    for _ in range(5):
        planned(scheduler)
    assert [scheduler.forget_all().given_up] + [lose_a_step(scheduler)[1].given_up for _ in range(2)] == [(), (), (1,)]


def test_a_preempted_sequence_that_a_step_in_flight_names_is_a_suspect() -> None:
    scheduler = make_scheduler(num_blocks=4)
    scheduler.add(make_sequence(1, 7))
    scheduler.add(make_sequence(2, 4))
    step(scheduler, 11, 21)
    planned(scheduler)
    assert scheduler.plan() is None
    scheduler.forget_all()
    assert [s.id for s in scheduler._sequences.values() if s.is_suspect] == [1, 2]


def test_a_death_while_nothing_runs_accuses_nobody() -> None:
    scheduler = with_sequences(1)
    lose_a_step(scheduler)
    for _ in range(5):
        assert scheduler.forget_all() == Forgotten(0, ())
    assert sequence_ids(planned(scheduler)) == [1]


def test_who_was_not_in_flight_again_is_cleared() -> None:
    """Sequence 1 was replayed well; the group dies again with 2 and the new 3."""
    scheduler = with_sequences(2)
    lose_a_step(scheduler)
    step(scheduler, 11, 21)
    scheduler.finish(1, FinishReason.CANCELLED)
    scheduler.add(make_sequence(3))
    lose_a_step(scheduler)
    assert sorted(s.id for s in scheduler._sequences.values() if s.is_suspect) == [2, 3]


def test_a_suspect_may_leave() -> None:
    scheduler = with_sequences(3)
    lose_a_step(scheduler)
    lose_a_step(scheduler)
    scheduler.finish(2, FinishReason.CANCELLED)
    plan = planned(scheduler)
    assert sequence_ids(plan) == [1]
    scheduler.finish(1, FinishReason.CANCELLED)
    assert scheduler.plan() is None, "3 runs alone, and the step of a suspect that left is still in flight"
    scheduler.commit(answer(plan, 21))
    assert sequence_ids(planned(scheduler)) == [3]


def test_a_suspect_alone_takes_the_blocks_that_it_needs_from_older_ones() -> None:
    """The group comes back with 3 blocks: too few for the two of each sequence."""
    scheduler = make_scheduler(num_blocks=6)
    for id in (1, 2):
        scheduler.add(make_sequence(id, 6, max_new=4))
    lose_a_step(scheduler)
    lose_a_step(scheduler)
    scheduler.resize(3)
    step(scheduler, 11)
    plan, _ = step(scheduler, 21)
    assert (plan.preempted, sequence_ids(plan)) == ((1,), [2])
    assert scheduler.num_waiting == 1


def test_a_suspect_alone_takes_the_slot_that_it_needs_from_the_youngest() -> None:
    """1 and 2 are cleared while others take all slots; then 3 has to run alone."""
    scheduler = make_scheduler(max_slots=4, max_step_tokens=40)
    for id in (1, 2, 3):
        scheduler.add(make_sequence(id))
    lose_a_step(scheduler)
    lose_a_step(scheduler)
    for id in (4, 5, 6):
        scheduler.add(make_sequence(id))
    assert sequence_ids(step(scheduler, 11, 21, 41, 51)[0]) == [1, 2, 4, 5]
    plan, _ = step(scheduler, 31)
    assert (plan.preempted, sequence_ids(plan)) == ((5,), [3])
    assert plan.cleared_slots == tuple(row.slot for row in plan.rows) == (3,)
    plan, _ = step(scheduler, 12, 22, 32, 42)
    assert (plan.preempted, sequence_ids(plan)) == ((), [])
    assert (scheduler.num_running, scheduler.num_waiting) == (4, 2)


@dataclass
class Traffic:
    """Sequences that run to their end on a group which dies whenever it computes the position `kills` of a sequence."""

    scheduler: Scheduler
    kills: dict[int, int]
    depth: int
    num_deaths: int = 0
    most_named: int = 0
    given_up: list[int] = field(default_factory=list)
    num_finished: int = 0
    in_flight: deque[tuple[Plan, dict[int, Sequence]]] = field(default_factory=deque)

    def advance(self) -> bool:
        """Plans as far ahead as the depth allows and runs the oldest step; False if nothing is left to do."""
        self.plan_ahead()
        if not self.in_flight:
            return False
        plan, slots = self.in_flight[0]
        if any(self.is_fatal(row, slots[row.slot]) for row in plan.rows):
            self.die()
        else:
            self.in_flight.popleft()
            self.commit(plan)
        return True

    def plan_ahead(self) -> None:
        while len(self.in_flight) < self.depth and (plan := self.scheduler.plan()) is not None:
            slots = {s.slot: s for s in self.scheduler._sequences.values() if s.slot is not None}
            self.in_flight.append((plan, slots))

    def finish(self) -> None:
        """Runs until nothing is left to do."""
        while self.advance():
            pass

    def is_fatal(self, row: Row, sequence: Sequence) -> bool:
        return row.start <= self.kills.get(sequence.id, -1) < row.start + row.num_inputs

    def lose_a_machine(self) -> None:
        """The group dies in the next step, through no fault of a sequence's."""
        self.plan_ahead()
        self.die()

    def die(self) -> None:
        self.num_deaths += 1
        self.most_named = max(self.most_named, len({row.slot for plan, _ in self.in_flight for row in plan.rows}))
        self.in_flight.clear()
        self.given_up += self.scheduler.forget_all().given_up

    @property
    def bound(self) -> int:
        """How many deaths one sequence may cause."""
        return math.ceil(math.log2(self.most_named)) + 4

    def commit(self, plan: Plan) -> None:
        slots = [row.slot for row in plan.rows if row.output is Output.SAMPLE]
        result = StepResult(plan.step_id, tuple(RowResult(slot, (7,), (-1.0,)) for slot in slots))
        confirmed = [each for each in self.scheduler.commit(result) if isinstance(each, Sampled)]
        self.num_finished += sum(each.finish_reason is not None for each in confirmed)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(40))
def test_a_poisoned_sequence_is_found_in_few_deaths(seed: int, depth: int) -> None:
    """Its poison is somewhere in its prompt or its output; the others, of which some come late, all finish, also where
    there are fewer slots than sequences."""
    rng = random.Random(seed)
    number = rng.choice([1, 2, 3, 5, 8, 16, 17, 33, 64])
    num_slots = rng.choice([2, 4, 64])
    scheduler = make_scheduler(num_blocks=1000, max_slots=num_slots, max_step_tokens=64 + rng.choice([4, 30, 200]))
    lengths = [rng.randint(1, 30) for _ in range(number)]
    for id, length in enumerate(lengths):
        scheduler.add(make_sequence(id, length, max_new=20))
    poisoned = rng.randrange(number)
    traffic = Traffic(scheduler, {poisoned: rng.randrange(lengths[poisoned] + 19)}, depth)
    num_late = 0
    while traffic.advance():
        if traffic.num_deaths and num_late < 5:
            scheduler.add(make_sequence(number + num_late, 3, max_new=4))
            num_late += 1
    assert (traffic.given_up, traffic.num_finished) == ([poisoned], number - 1 + num_late)
    assert traffic.num_deaths <= traffic.bound
    assert traffic.num_deaths <= 2 * math.log2(number + num_late) + 3


@pytest.mark.parametrize("seed", range(10))
def test_several_poisoned_sequences_are_all_found(seed: int) -> None:
    rng = random.Random(seed)
    scheduler = make_scheduler(num_blocks=1000, max_slots=32, max_step_tokens=64)
    for id in range(32):
        scheduler.add(make_sequence(id, 8, max_new=20))
    kills = {id: rng.randrange(27) for id in rng.sample(range(32), 3)}
    traffic = Traffic(scheduler, kills, depth=2)
    traffic.finish()
    assert sorted(traffic.given_up) == sorted(kills)
    assert traffic.num_finished == 29
    assert traffic.num_deaths <= 3 * 20


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_a_poisoned_sequence_that_comes_during_a_trial_is_found_as_fast(seed: int, depth: int) -> None:
    """The machine dies under sequences that are suspected for nothing; the poisoned one comes before they are
    cleared, alone or with others."""
    rng = random.Random(seed)
    number, num_late = rng.choice([2, 8, 16, 33, 64]), rng.choice([1, 1, 2, 7])
    scheduler = make_scheduler(num_blocks=2000, max_slots=rng.choice([3, 128]), max_step_tokens=rng.choice([140, 400]))
    for id in range(number):
        scheduler.add(make_sequence(id, rng.choice([4, 30]), max_new=20))
    poisoned = number + rng.randrange(num_late)
    traffic = Traffic(scheduler, {poisoned: rng.randrange(20)}, depth)
    traffic.lose_a_machine()
    for id in range(number, number + num_late):
        scheduler.add(make_sequence(id, 4, max_new=20))
    traffic.finish()
    assert (traffic.given_up, traffic.num_finished) == ([poisoned], number + num_late - 1)
    assert traffic.num_deaths <= 1 + traffic.bound


@pytest.mark.parametrize("num_slots", [4, 128])
@pytest.mark.parametrize("number", [8, 16, 64])
def test_a_poisoned_sequence_that_is_sent_again_while_it_is_looked_for_is_found(number: int, num_slots: int) -> None:
    """Its client leaves after three deaths and asks again at once."""
    scheduler = make_scheduler(num_blocks=2000, max_slots=num_slots, max_step_tokens=400)
    for id in range(number):
        scheduler.add(make_sequence(id, 4, max_new=20))
    traffic = Traffic(scheduler, {0: 2, number: 2}, depth=2)
    while traffic.num_deaths < 3:
        traffic.advance()
    scheduler.finish(0, FinishReason.CANCELLED)
    scheduler.add(make_sequence(number, 4, max_new=20))
    traffic.finish()
    assert (traffic.given_up, traffic.num_finished) == ([number], number - 1)
    assert traffic.num_deaths <= 3 + traffic.bound


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("number", [16, 64])
def test_a_sequence_that_turns_deadly_after_it_was_cleared_is_accused_again(number: int, depth: int) -> None:
    """The machine dies; the short prompt of sequence 0 is computed again long before the long ones of the others,
    and it kills right after that, while they are suspects."""
    scheduler = make_scheduler(num_blocks=4000, max_slots=128, max_step_tokens=140)
    scheduler.add(make_sequence(0, 4, max_new=40))
    for id in range(1, number):
        scheduler.add(make_sequence(id, 100, max_new=10))
    traffic = Traffic(scheduler, {0: 4 + depth}, depth)
    traffic.advance()
    traffic.lose_a_machine()
    traffic.finish()
    assert (traffic.given_up, traffic.num_finished) == ([0], number - 1)
    assert traffic.num_deaths <= 1 + MAX_PARDONS + traffic.bound


def test_whose_guesses_were_in_flight_twice_guesses_no_more() -> None:
    """A token that only a wrong guess makes deadly would come back each time that its sequence is cleared."""
    sequence = make_sequence(1)
    sequence.guesser, sequence.is_verifying = LookupGuesser(sequence.tokens), True
    suspects = Suspects()
    suspects.accuse([sequence])
    assert sequence.guesser is not None
    suspects.clear(sequence)
    suspects.accuse([sequence])
    assert sequence.guesser is None
