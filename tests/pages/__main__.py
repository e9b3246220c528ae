"""Write the pages that are made from the code: `docs/configuration.md`, `docs/api.md` and `docs/tools.md`."""

from tests.pages import api, configuration, tools

for page in (configuration, api, tools):
    page.PAGE.write_text(page.render())
