"""Write the pages that are made from the code: `docs/configuration.md` and `docs/api.md`."""

from tests.pages import api, configuration

for page in (configuration, api):
    page.PAGE.write_text(page.render())
