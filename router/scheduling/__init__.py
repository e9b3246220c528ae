"""The pure scheduler: standard library only; no clock, randomness, asyncio, logging or protobuf."""
