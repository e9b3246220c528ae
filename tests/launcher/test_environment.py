"""What --env prints."""

import platform

from router import environment


def test_names_what_a_report_needs():
    facts = dict(line.split(": ", 1) for line in environment.describe().splitlines())
    assert facts["python"] == platform.python_version()
    assert facts["torch"].split(".")[0].isdigit()
    assert facts["processor"].endswith("logical")


def test_package_that_is_missing():
    assert environment._version("no-such-package-at-all") == "not installed"
