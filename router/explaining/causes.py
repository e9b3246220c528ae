"""The causes that a request's time can have gone to, a row of a table each, with its seconds and its sentence."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.router.explaining.story import Story
from penstock.router.explaining.words import joined, number, rate, seconds
from penstock.router.metrics.caches import HIT, SHARED
from penstock.router.scheduling.wait_reasons import WaitReason
from penstock.router.scheduling.waits import Return


class Phase:
    """The names of the parts of a request's time, in their order."""

    READING, CHECKING, REDOING, WAITING, COMPUTING, SENDING = (
        "reading", "checking", "redoing", "waiting", "computing", "sending")


class Cause(NamedTuple):
    """Something that a request's time went to. `sentence` begins with a verb in the past, and has no full stop."""

    name: str
    phase: str
    seconds: float
    sentence: str


class _Kind(NamedTuple):
    name: str
    phase: str
    seconds: Callable[[Story], float]
    sentence: Callable[[Story, str], str]
    """Takes the seconds as they are told, too."""


def _waited(reason: WaitReason, what: str) -> _Kind:
    return _Kind(reason, Phase.WAITING, lambda story: story.usage.waits.get(reason, 0.0),
                 lambda story, took: f"waited {took} for {what.format(**_found(story))}{_company(story)}"
                                     f"{_advice(story, reason)}")


def _found(story: Story) -> Mapping[str, str]:
    """Returns the words for the crowd that a request found."""
    arrival = story.usage.arrival
    if arrival is None:
        return dict.fromkeys(("slots", "held", "held_of"), "some")
    return {"slots": number(arrival.num_slots), "held": number(arrival.num_held * story.block_size),
            "held_of": number(arrival.num_blocks * story.block_size)}


def _company(story: Story) -> str:
    arrival = story.usage.arrival
    if arrival is None or not (arrival.num_before or arrival.num_running):
        return ""
    before, running = arrival.num_before, arrival.num_running
    crowd = [f"{number(before)} request{'s' * (before != 1)} before it"] if before else []
    return f", with {joined([*crowd, f'{number(running)} that ran'] if running else crowd)}"


_HAS_SETTING = {WaitReason.SLOTS, WaitReason.MEMORY, WaitReason.BUDGET, WaitReason.ADAPTER}


def _advice(story: Story, reason: WaitReason) -> str:
    """Returns which settings would have admitted it, behind the longest of the waits that they are for."""
    waits = {each: story.usage.waits.get(each, 0.0) for each in _HAS_SETTING}
    if not story.changes or max(waits, key=lambda each: waits[each]) is not reason:
        return ""
    return f"; {joined([*map(str, story.changes)])} would have admitted it"


def _returned(reason: Return, why: str) -> _Kind:
    return _Kind(reason, Phase.COMPUTING, lambda story: story.usage.waits.get(reason, 0.0),
                 lambda story, took: f"waited {took} to go on, since {why}")


def _before(name: str, phase: str, what: str) -> _Kind:
    """Returns the row of something that was waited for before the engine had the request."""
    return _Kind(name, phase, lambda story: story.waits.get(name, 0.0), lambda story, took: f"waited {took} for {what}")


def _is_kept(story: Story) -> bool:
    return story.cache.startswith(HIT)


def _is_shared(story: Story) -> bool:
    return story.cache == SHARED and not story.usage.prompt_seconds


def _of_others(story: Story) -> bool:
    return _is_kept(story) or _is_shared(story)


def _returns(story: Story) -> float:
    usage = story.usage
    return usage.replay_seconds + usage.vain_seconds + sum([usage.waits.get(each, 0.0) for each in Return])


def _others_prompts(story: Story) -> float:
    usage = story.usage
    return max(0.0, min(usage.prompts_beside, story.computing - usage.prompt_seconds - _returns(story)))


def _writing(story: Story) -> float:
    rest = story.computing - story.usage.prompt_seconds - _returns(story) - _others_prompts(story)
    return 0.0 if _of_others(story) or story.to_first_token is None else max(0.0, rest)


def _prompt(story: Story, took: str) -> str:
    usage = story.usage
    cached = (f", {number(story.num_cached)} more were cached" if story.num_cached else
              ", none was cached" if usage.prompt_tokens == story.num_input else "")
    return (f"computed its prompt for {took}: {number(usage.prompt_tokens)} tokens at "
            f"{rate(usage.prompt_tokens, usage.prompt_seconds)}{cached}")


def _written(story: Story, took: str) -> str:
    beside = round(story.usage.num_beside / story.usage.num_steps) if story.usage.num_steps else 0
    others = f" beside {number(beside)} other{'s' * (beside != 1)}" if beside else ""
    return (f"wrote {number(story.num_output)} token{'s' * (story.num_output != 1)} in {took}, "
            f"{rate(max(1, story.num_output - 1), _writing(story))}{others}")


def _replay(story: Story, took: str) -> str:
    return f"computed {number(story.usage.replayed_tokens)} tokens once more in {took}, which it had lost"


def _reading(story: Story) -> float:
    before = story.elsewhere + story.steps + sum([story.waits.get(each, 0.0) for each in ("load", "permit")])
    return max(0.0, story.reading - before)


_KINDS = (
    _Kind("reading", Phase.READING, _reading,
          lambda story, took: f"took {took} to come and to be read"),
    _before("load", Phase.READING, "its model to be loaded"),
    _before("permit", Phase.READING, "its turn on its stream"),
    _Kind("elsewhere", Phase.READING, lambda story: story.elsewhere,
          lambda story, took: f"was answered by servers elsewhere for {took}"),
    _Kind("steps", Phase.READING, lambda story: story.steps,
          lambda story, took: f"ran the steps of its pipeline before the last model for {took}"),
    _before("grammar", Phase.CHECKING, "its grammar to be compiled"),
    _Kind("checking", Phase.CHECKING, lambda story: max(0.0, story.checking - story.waits.get("grammar", 0.0)),
          lambda story, took: f"was tokenised and checked for {took}"),
    _Kind("redoing", Phase.REDOING, lambda story: story.redoing,
          lambda story, took: f"spent {took} on answers that did not pass the checks"),
    _waited(WaitReason.MEMORY, "memory, of which {held} of {held_of} tokens were taken when it came"),
    _waited(WaitReason.SLOTS, "one of the {slots} places of requests that run"),
    _waited(WaitReason.BUDGET, "room in a step"),
    _waited(WaitReason.QUOTA, "memory, of which its key held as much as it may"),
    _waited(WaitReason.PREFIX, "another request to compute the beginning that both have"),
    _waited(WaitReason.ADAPTER, "its adapter to be loaded"),
    _waited(WaitReason.BEAM, "other beams of its search"),
    _waited(WaitReason.SUSPECT, "a request to run alone that may have killed the shards"),
    _waited(WaitReason.OTHERS, "others, which come before those of the background"),
    _waited(WaitReason.GROUP, "the shards, which were away"),
    _waited(WaitReason.NEW, "the next step to be planned"),
    _Kind("kept", Phase.WAITING, lambda story: story.waiting + story.computing if _is_kept(story) else 0.0,
          lambda story, took: f"was given, in {took}, an answer that was kept from before"),
    _Kind("shared", Phase.COMPUTING, lambda story: story.waiting + story.computing if _is_shared(story) else 0.0,
          lambda story, took: f"shared for {took} what was computed for an equal request"),
    _Kind("prompt", Phase.COMPUTING, lambda story: story.usage.prompt_seconds, _prompt),
    _returned(Return.PREEMPTED, "others needed its memory"),
    _returned(Return.REPLAYED, "its shards were lost"),
    _returned(Return.MOVED, "it moved to another group"),
    _Kind("lost", Phase.COMPUTING, lambda story: story.usage.vain_seconds,
          lambda story, took: f"was computed for {took} by shards that were lost before they answered"),
    _Kind("replay", Phase.COMPUTING, lambda story: story.usage.replay_seconds, _replay),
    _Kind("others_prompts", Phase.COMPUTING, _others_prompts,
          lambda story, took: f"wrote beside prompts of others, which took {took} of its steps"),
    _Kind("writing", Phase.COMPUTING, _writing, _written),
    _Kind("sending", Phase.SENDING, lambda story: story.sending,
          lambda story, took: f"waited {took} for its client to take the answer"),
)


def causes_of(story: Story) -> list[Cause]:
    """Returns all that a request's time went to, the longest first."""
    found = [Cause(str(kind.name), kind.phase, took, kind.sentence(story, seconds(took)))
             for kind in _KINDS if (took := kind.seconds(story)) > 0.0]
    return sorted(found, key=lambda cause: -cause.seconds)
