"""The golden vectors: written, checked and exported."""
