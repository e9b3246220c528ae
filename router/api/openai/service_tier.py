"""OpenAI's `service_tier` and vLLM's `priority`: who comes first, and what the answer tells of it."""

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.limits import Limits

TIERS = {"flex": 16, "priority": -16}
"""The priority of each tier but the default one."""


def priority_of(body: OpenAIBody, limits: Limits) -> int | None:
    """Returns the priority that a body asks for, by whichever field; None if by none. Raises ValidationError if it asks
    by both. No tier is before the priority that its key has."""
    tier = served_tier(body, limits)
    if tier in (None, "default"):
        return body.priority
    if body.priority is not None:
        raise ValidationError(f"`service_tier` and `priority` can't be given together, unless the first is default. "
                              f"Given: {body.service_tier} and {body.priority}")
    most = request_record.current().grants.priority
    return TIERS[tier] if most is None else max(most, TIERS[tier])


def served_tier(body: OpenAIBody, limits: Limits) -> str | None:
    """Returns the tier by which a body is answered; None if it names none. As with OpenAI, that may be another one than
    it asks for: `fast` is `priority`, which is `default` where no client may come before others, as `scale` is."""
    match body.service_tier:
        case None | "flex":
            return body.service_tier
        case "priority" | "fast" if limits.allow_priorities:
            return "priority"
    return "default"
