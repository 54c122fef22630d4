"""What is known of networks: libraries' own logs, benchmarks, and what running jobs measured."""
