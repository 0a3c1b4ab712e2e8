"""The two tenants of `narrow`."""

import hashlib

KEYS = {"alice": "key-of-alice", "bob": "key-of-bob"}  # tenant → key
DIGESTS = {hashlib.sha256(key.encode()).hexdigest(): tenant for tenant, key in KEYS.items()}


def bearer(tenant: str) -> dict[str, str]:
    """What identifies a tenant over HTTP."""
    return {"Authorization": f"Bearer {KEYS[tenant]}"}
