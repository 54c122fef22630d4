"""What a run leaves behind of itself: one file of JSON lines a rank, written as it goes (docs/engine.md). Off unless asked for."""
