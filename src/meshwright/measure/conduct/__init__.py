"""The loop that runs trials: started, watched, ended in time, classified, tried again where that helps, kept and told."""
