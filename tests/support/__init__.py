"""What the tests share: real servers and the strict model provider."""
