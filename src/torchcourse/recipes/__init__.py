"""Training recipes: each a page that puts data, network, schedule and loop together, and a time to beat."""
