"""Files of users as documents: read without being run, changed in place without touching anything else."""
