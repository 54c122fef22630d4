"""Stage balance of files of layers and of models: what is asked, what is answered, what stands beside it."""
