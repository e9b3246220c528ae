"""All groups of shards as one engine: choosing one for a request, moving requests between them, finding them; may
import adapters, config, contract, engine, errors, fleet, limits, metrics and system."""
