"""The brain of ``tune``: what is believed of layouts that were not run, from the cost model and from those that were."""
