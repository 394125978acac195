"""Figures: plain functions on lists of answers, each written once for tasks and reports."""
