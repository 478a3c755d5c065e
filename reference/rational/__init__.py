"""The second oracle. It shares no code with the first oracle or the reference."""
