"""Values in words: terminal tables for people, JSON documents for programs."""
