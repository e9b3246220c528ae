"""Explains to a client why a request took as long as it did: in a sentence, by its causes, and as a timeline."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.router.explaining.causes import Cause, Phase, causes_of
from penstock.router.explaining.story import Story
from penstock.router.explaining.words import seconds

MOST_TOLD = 3
"""How many causes the sentence names."""
LEAST_SHARE, LEAST_SECONDS = 0.01, 0.001
"""Of all time, and in seconds: what took less is no reason."""


def reasons_of(story: Story, causes: Sequence[Cause] | None = None) -> list[str]:
    """Returns a sentence for each cause that matters, the longest first."""
    least = max(LEAST_SECONDS, LEAST_SHARE * story.total)
    told = [cause for cause in (causes_of(story) if causes is None else causes) if cause.seconds >= least]
    return [f"{cause.sentence[0].upper()}{cause.sentence[1:]}." for cause in told]


def explain(story: Story) -> dict[str, Any]:
    """Returns the explanation of a request, as it stands in JSON."""
    causes = causes_of(story)
    told = {
        "id": story.id, "answer_id": story.answer_id,
        "time": datetime.fromtimestamp(story.at, UTC).isoformat(timespec="microseconds"),
        "route": story.route, "model": story.model, "status": story.status, "error": story.error,
        "total_seconds": _rounded(story.total), "explanation": _sentence(story, causes),
        "reasons": reasons_of(story, causes),
        "causes": [{"cause": cause.name, "seconds": _rounded(cause.seconds)} for cause in causes],
        "timeline": _timeline(story, causes),
        "first_token_at": None if story.to_first_token is None else _rounded(story.to_first_token),
        "settings": [{"option": change.option, "value": change.value, **({"of": change.of} if change.of else {})}
                     for change in story.changes]}
    return {name: value for name, value in told.items() if value is not None}


def _sentence(story: Story, causes: Sequence[Cause]) -> str:
    reasons = reasons_of(story, causes[:MOST_TOLD])
    parts = [reason[0].lower() + reason[1:-1] for reason in reasons]
    most = f" of its {story.num_answers} answers the last" if story.num_answers > 1 else ""
    end = f", and failed ({story.error})" if story.error else ""
    return f"Took {seconds(story.total)}{end}{':' * bool(parts)}{most}{' ' * bool(parts)}{'; '.join(parts)}."


def _timeline(story: Story, causes: Sequence[Cause]) -> list[dict[str, Any]]:
    """Returns the phases that took time, in their order, each with when it began and its causes."""
    at, found = 0.0, []
    for phase in (Phase.READING, Phase.CHECKING, Phase.REDOING, Phase.WAITING, Phase.COMPUTING, Phase.SENDING):
        took: float = getattr(story, phase)
        if took > 0.0:
            found.append({"phase": phase, "at": _rounded(at), "seconds": _rounded(took),
                          "causes": {cause.name: _rounded(cause.seconds) for cause in causes if cause.phase == phase}})
        at += took
    return found


def _rounded(time: float) -> float:
    return round(time, 6)
