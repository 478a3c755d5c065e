"""Reports: what a run found, as a table, JUnit XML, Markdown or a badge."""
