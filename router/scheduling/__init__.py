"""The scheduler, pure: no clock, randomness, asyncio, logging or protobuf; may import contract."""
