"""The suite: cases and properties by rule, the judge, the reports, the command line.

Importing it loads nothing: pytest reads its plugin at every start, in projects
that have no use for it too.
"""
