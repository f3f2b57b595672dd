"""The output of a run: a summary in the terminal, an HTML page, tables for other programs. Reads run files only."""
