"""What is there: probed from the machine at hand, or loaded from a machine file."""
