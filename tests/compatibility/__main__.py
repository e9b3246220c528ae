"""Write `docs/compatibility.md`."""

import asyncio

from tests.compatibility.inventory import inventory, looked_at
from tests.compatibility.reasons import REASONS
from tests.compatibility.table import PAGE, render
from tests.compatibility.tei_inventory import looked_at_tei, tei_inventory
from tests.compatibility.tei_reasons import TEI_REASONS


async def main() -> None:
    async with looked_at() as servers, looked_at_tei() as of_tei:
        text = render(await inventory(servers), REASONS, await tei_inventory(of_tei), TEI_REASONS)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text)


asyncio.run(main())
