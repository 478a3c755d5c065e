"""Programs in any language, and answers in files, as backends."""
