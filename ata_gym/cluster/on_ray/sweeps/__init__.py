"""Jobs of experiments on the nodes of a Ray cluster, with the results of a local run."""
