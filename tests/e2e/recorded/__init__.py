"""The demo model's answers as they were recorded, so that a change of any bit is noticed."""
