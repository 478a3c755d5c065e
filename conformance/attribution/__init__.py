"""Which failures have one cause, which rule a cause breaks, and which wrong implementation it resembles."""
