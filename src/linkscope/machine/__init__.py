"""Machines: this computer as detected, saved machines, and machine files."""
