"""Learning to protect: protectors whose parts are small networks, trained on public tasks and kept as files."""
