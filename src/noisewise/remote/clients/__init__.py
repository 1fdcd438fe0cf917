"""Records that lie with clients, one file each: the curator, its purse and the noise stay on the server."""
