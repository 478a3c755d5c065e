from attnspec.conformance.suite.group import Chapter
chapter = Chapter("caching")
