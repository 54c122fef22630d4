"""What allocators recorded."""
