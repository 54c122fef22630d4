"""Answers as the JSON documents of the contract."""
