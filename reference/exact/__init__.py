"""The exact oracle evaluates cases in ball arithmetic until every element rounds to one float64."""
