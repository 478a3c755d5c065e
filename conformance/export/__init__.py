"""Cases as files that any program can judge by: inputs, expected values and allowed errors."""
