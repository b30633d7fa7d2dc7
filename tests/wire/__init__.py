"""What reaches a provider."""
