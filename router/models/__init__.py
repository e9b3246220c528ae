"""Several models in one server: which of them are loaded, and which names they answer to; may import adapters, config,
contract, engine, errors, fleet, foreign, foreign_settings, generation, groups, limits, memory_ceiling, metrics,
notices, parts, pipeline_settings, text and system."""
