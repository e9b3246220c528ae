"""From a generation spec to the events of its answers, for every API; it imports the engine, and no API."""
