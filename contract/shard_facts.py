"""The facts of one shard of a group."""

from dataclasses import dataclass

from penstock.contract.facts import Facts


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """Holds one shard's answer to Describe: its place in the group, and the facts of the group as it sees them.

    `shards_here` is how many shards of the group listen at consecutive ports of the shard's machine, in rank order; 0
    if they are at Unix sockets.
    """

    rank: int
    answers: bool
    facts: Facts
    shards_here: int = 0
