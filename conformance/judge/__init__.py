"""The judge compares one call of one backend with the result that the standard requires."""
