"""What people see of a run: a summary in the terminal, a page, tables for other programs. Reads run files only."""
