"""Losses: one documented file each."""
