"""Files of others become values: guarded YAML and JSON, strict structuring, Hugging Face configurations."""
