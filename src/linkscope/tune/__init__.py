"""Finds the fastest method and settings of transfers on this machine (Jordà et al., section VI)."""
