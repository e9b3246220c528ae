"""The rules that come before a permit."""

from penstock.contract.facts import Facts
from penstock.router.adapters.registry import Registry
from penstock.router.generation import request_record
from penstock.router.generation.beams import check_beams
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.refusals import refuse_beyond, refuse_if
from penstock.router.generation.spec import GenerationSpec
from penstock.router.limits import Limits
from penstock.router.scheduling.priorities import MAX_PRIORITY, MIN_PRIORITY


def check_mode(spec: GenerationSpec, limits: Limits, facts: Facts, adapters: Registry, is_stream: bool) -> None:
    """Checks the rules that come before a permit: how many answers there may be, what a stream can't carry, who may
    come before others, and whether there is such an adapter."""
    check_beams(spec, limits, facts, is_stream)
    best_of = 1 if spec.parameters.best_of is None else spec.parameters.best_of
    _check_number(spec.parameters, limits, is_stream)
    if is_stream:
        refuse_if(best_of != 1, "`best_of` != 1 is not supported when streaming tokens")
        refuse_if(spec.parameters.decoder_input_details,
                  "`decoder_input_details` == true is not supported when streaming tokens")
    elif best_of > 1:
        refuse_if(limits.max_best_of == 1, "`best_of` != 1 is not allowed for this endpoint")
        refuse_if(best_of > limits.max_best_of, f"`best_of` must be > 0 and <= {limits.max_best_of}. Given: {best_of}")
    most = limits.max_concurrent_requests
    name = "n" if spec.parameters.n in (None, spec.n) else "best_of"
    refuse_if(spec.n > max(1, most), f"`{name}` must be <= {most}. Given: {spec.n}", "integer_above_max_value")
    check_priority(spec.parameters.priority, limits)
    _check_deadline(spec)
    adapters.check(spec.adapter)


def _check_number(parameters: Parameters, limits: Limits, is_stream: bool) -> None:
    """Checks `n` of TGI's routes, which can't return more answers than candidates."""
    n, best_of = parameters.n, parameters.best_of
    if n in (None, 1):
        return
    refuse_if(is_stream, f"`n` != 1 is not supported when streaming tokens; `/v1/completions` has it. Given: {n}")
    refuse_beyond(n, f"`n` must be > 0 and <= {limits.max_best_of}. Given: {n}", above=0, most=limits.max_best_of)
    refuse_beyond(best_of, f"`best_of` must be >= `n`. Given: {best_of} and {n}", least=n)


def _check_deadline(spec: GenerationSpec) -> None:
    deadline = spec.parameters.deadline_ms
    refuse_beyond(deadline, f"`deadline_ms` must be strictly positive. Given: {deadline}", above=0)
    refuse_if(deadline is not None and spec.has_beams,
              f"`deadline_ms` can't be promised with `{spec.names.beam_search}`", "unsupported_parameter")


def check_priority(priority: int | None, limits: Limits) -> None:
    """Checks whether a request may have the priority that it names."""
    refuse_beyond(priority, f"`priority` must be >= {MIN_PRIORITY} and <= {MAX_PRIORITY}. Given: {priority}",
                  least=MIN_PRIORITY, most=MAX_PRIORITY)
    most = request_record.current().grants.priority
    if most is not None:
        refuse_beyond(priority, f"`priority` must be >= {most}, which its key has: it comes before no request of that "
                                f"priority. Given: {priority}", least=most)
        return
    refuse_if(priority is not None and priority < 0 and not limits.allow_priorities,
              "`priority` must be >= 0, for this server lets no client come before others: it was started without "
              f"--allow-priorities. Given: {priority}", "integer_below_min_value")


def given_priority(priority: int | None) -> int:
    """Returns the priority that a request names, or else that of its key."""
    return request_record.current().grants.priority or 0 if priority is None else priority
