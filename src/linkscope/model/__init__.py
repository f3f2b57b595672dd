"""From points to a model: curves over size, classes of paths, shared links, and a machine file."""
