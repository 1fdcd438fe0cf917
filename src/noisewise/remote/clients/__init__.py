"""Records that lie with clients, one file each: the curator, its purse and its noise stay on the server."""
