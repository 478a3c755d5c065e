"""Reports of a run, on the terminal and as JUnit XML, Markdown or a badge."""
