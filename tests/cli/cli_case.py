"""The case of most command lines here."""

CASE = ["llama3-8b", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "128", "--sequence", "8192"]
