"""What points mean together: curves of one method on one path over size, and their names for people."""
