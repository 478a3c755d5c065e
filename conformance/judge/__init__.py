"""The judge: one call of one backend compared with what the standard says that it gives."""
