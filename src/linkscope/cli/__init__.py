"""The commands: parsing and printing only, one file for each verb."""
