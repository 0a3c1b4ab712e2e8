"""Who does it, how, how much: leases, plans, dispatch by credit, and every end without a worker."""
