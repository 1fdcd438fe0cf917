"""Records that lie elsewhere (other processes, other machines, other people), behind the protocol of stores."""
