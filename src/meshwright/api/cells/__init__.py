"""Cells of an atlas: which there are, what is predicted and what was measured in each, and what is kept of them."""
