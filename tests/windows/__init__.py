"""Text windows: threads as stores hold them, and what a provider is sent of them."""
