"""Finds the fastest method and settings of transfers on this machine (Jorda et al., section VI)."""
