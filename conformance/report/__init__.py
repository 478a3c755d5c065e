"""Reports: what a run found, on the terminal and as JUnit XML, Markdown or a badge."""
