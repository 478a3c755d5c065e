"""Tools of the project's maintainers: kill matrix, evidence, benchmark, dialects, traces."""
