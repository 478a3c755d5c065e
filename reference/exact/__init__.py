"""The exact oracle: cases evaluated in ball arithmetic until every element rounds to one float64."""
