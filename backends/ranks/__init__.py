"""Real ranks: a call of sharded attention is cut into calls of several processes."""
