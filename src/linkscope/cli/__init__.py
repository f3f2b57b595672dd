"""The commands: parsing and printing only, one file a verb."""
