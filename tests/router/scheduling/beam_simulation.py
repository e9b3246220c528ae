"""Seeded traffic with beam searches among it, whose answers are those of searches that nothing disturbs."""

from dataclasses import replace
from typing import Any

from penstock.contract.row_result import TopLogprobs
from penstock.contract.sampling import Sampling
from penstock.router.scheduling.beam_search import BeamSearch, BeamSettings, Candidate, FoundAnswer, ways_on
from penstock.router.scheduling.confirmed import Candidates
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.sequence import Sequence, Status
from tests.adapter_inputs import adapter_input
from tests.router.scheduling.mixed_simulation import MixedSimulation
from tests.router.scheduling.shard_mirror import EOS, PARITIES, candidates, chain_of, extend
from tests.router.scheduling.simulated_adapters import ADAPTERS
from tests.router.scheduling.simulated_client import Client
from tests.router.scheduling.simulation import MAX_LENGTH, Simulation

PENALTIES = (0.0, 0.5, 1.0, 2.0)


def reasons_of(found: list[Candidate], length: int, max_new_tokens: int) -> list[FinishReason | None]:
    """Why each of the candidates ends, as answers of `length` tokens."""
    return [FinishReason.LENGTH if length == max_new_tokens else
            FinishReason.EOS_TOKEN if each.token_id == EOS else None for each in found]


class SimulatedSearch:
    """A beam search, with the clients of its beams, the likeliest first."""

    def __init__(self, settings: BeamSettings, root: Client) -> None:
        self.settings, self.root = settings, root
        self.prompt = list(root.tokens)
        self.max_new_tokens = root.sequence.max_length - len(self.prompt)
        self.search = self.begin()
        self.clients = [root]
        self.tops: dict[int, TopLogprobs] = {}

    def begin(self) -> BeamSearch:
        return BeamSearch(self.settings, self.max_new_tokens, 1)

    def undisturbed(self) -> list[FoundAnswer]:
        """The answers that follow from the prompt alone."""
        search, texts = self.begin(), [self.prompt]
        while search.beams:
            mask = PARITIES[len(texts[0]) % 2] if self.root.sequence.has_grammar else None
            found = search.choose([
                candidates(chain_of(self.root.adapter, text)[-1], self.root.salt, mask, search.num_candidates)
                for text in texts])
            going = search.advance(found, reasons_of(found, search.length + 1, self.max_new_tokens))
            texts = [[*texts[each.beam], each.token_id] for each in going]
        return search.answers


class BeamSimulation(Simulation):
    """A simulation in which a third of those that come ask for a beam search."""

    def __init__(self, seed: int, depth: int, *options: Any, **more: Any) -> None:
        super().__init__(seed, depth, *options, **more)
        self.searches: dict[int, SimulatedSearch] = {}
        """By the id of each beam's sequence."""

    def arrive(self) -> None:
        if self.chance(0.65):
            super().arrive()
            return
        tokens, namespace = self.prompt()
        num_beams = self.random.randint(1, 5)
        settings = BeamSettings(num_beams, self.random.randint(1, num_beams), self.random.choice(PENALTIES),
                                self.random.choice([False, True, "never"]))
        limit = min(len(tokens) + self.random.randint(1, 20), MAX_LENGTH)
        client = self.ask(settings, tokens, limit, ADAPTERS[namespace], has_grammar=self.chance(0.3))
        if self.chance(0.02):
            client.kills_at = self.random.randint(len(tokens), limit - 1)

    def ask(
        self, settings: BeamSettings, tokens: list[int], limit: int, adapter: int = 0, *, has_grammar: bool = False
    ) -> Client:
        """A client asks for answers of up to `limit` tokens with those of the prompt."""
        sequence = Sequence(
            self.next_id, list(tokens), len(tokens), limit, Sampling(top_n=2 * settings.num_beams),
            adapter_input(adapter), has_grammar=has_grammar, is_beam=True,
            priority=self.priority())
        self.next_id += 1
        client = Client(sequence, list(tokens), chain_of(adapter, tokens), self.random.choice([0, 0, 1]),
                        sequence.side_inputs)
        self.searches[sequence.id] = SimulatedSearch(settings, client)
        self.live[sequence.id] = client
        self.scheduler.add(sequence)
        self.added(sequence)
        self.counts["searches"] += 1
        self.check()
        return client

    def consider(self, found: Candidates) -> None:
        """Candidates reach their search, which goes on once those of all its beams are there."""
        searching, client = self.searches[found.sequence_id], self.live[found.sequence_id]
        expected = candidates(client.chain[-1], client.salt, client.mask, searching.search.num_candidates)
        assert found.top_logprobs == expected, "the candidates changed"
        assert found.sequence_id not in searching.tops, "candidates come twice"
        if len(client.tokens) + 1 >= client.cleared_at:
            client.num_solo_deaths = 0
        searching.tops[found.sequence_id] = found.top_logprobs
        self.counts["undecided"] += len(searching.tops) < len(searching.clients)
        if len(searching.tops) == len(searching.clients):
            self.decide(searching)

    def decide(self, searching: SimulatedSearch) -> None:
        search, clients = searching.search, searching.clients
        best = search.choose([searching.tops[client.sequence.id] for client in clients])
        going = search.advance(best, reasons_of(best, search.length + 1, searching.max_new_tokens))
        searching.tops.clear()
        if not going:
            assert search.answers == searching.undisturbed(), "the answers changed"
            self.counts["answers"] += len(search.answers)
            self.end(clients[0], FinishReason.EOS_TOKEN)
            return
        ended, ways = ways_on(going, len(clients))
        for place in ended:
            self.drop(clients[place], FinishReason.CANCELLED)
        searching.clients = [(self.fork if is_fork else self.follow)(clients[each.beam], each.token_id)
                             for each, is_fork in ways]
        for client in searching.clients:
            self.searches[client.sequence.id] = searching
        assert [client.tokens[client.sequence.prompt_length:] for client in searching.clients] == [
            beam.token_ids for beam in search.beams], "beams have other tokens"

    def follow(self, client: Client, token_id: int) -> Client:
        """The client of a beam that goes on."""
        self.scheduler.extend(client.sequence.id, token_id)
        client.tokens.append(token_id)
        extend(client.chain, token_id)
        return client

    def fork(self, parent: Client, token_id: int) -> Client:
        """The client of a beam that goes on otherwise than its parent, which has gone on."""
        sequence, tokens = parent.sequence, [*parent.tokens[:-1], token_id]
        child = Sequence(
            self.next_id, list(tokens), sequence.prompt_length, sequence.max_length, sequence.sampling,
            sequence.side_inputs, has_grammar=sequence.has_grammar, is_beam=True, age=sequence.age,
            record=replace(sequence.record), priority=sequence.priority, usage=sequence.usage)
        self.next_id += 1
        client = Client(child, tokens, [*parent.chain[:-1]], parent.salt, parent.side_inputs)
        extend(client.chain, token_id)
        self.live[child.id] = client
        self.scheduler.fork(child, sequence.id)
        if child.status is Status.RUNNING:
            self.present[child.id] = client
        self.counts["beams waiting"] += child.status is Status.WAITING
        return client

    def drop(self, client: Client, reason: FinishReason) -> None:
        self.scheduler.finish(client.sequence.id, reason)
        del self.live[client.sequence.id], self.searches[client.sequence.id]

    def end(self, client: Client, reason: FinishReason | None) -> None:
        """With a beam all others of its search end, too."""
        if (searching := self.searches.get(client.sequence.id)) is not None:
            for other in searching.clients:
                if other is not client:
                    self.drop(other, FinishReason.CANCELLED)
            del self.searches[client.sequence.id]
        super().end(client, reason)


class MixedBeamSimulation(BeamSimulation, MixedSimulation):
    """The same with requests of several priorities, and of the background."""
