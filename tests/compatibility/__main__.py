"""Write `docs/compatibility.md`."""

import asyncio

from tests.compatibility.inventory import inventory, looked_at
from tests.compatibility.reasons import REASONS
from tests.compatibility.table import PAGE, render


async def main() -> None:
    async with looked_at() as servers:
        text = render(await inventory(servers), REASONS)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text)


asyncio.run(main())
