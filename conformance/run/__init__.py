"""Run the suite: in separate processes, under pytest, over the protocol, and by files."""
