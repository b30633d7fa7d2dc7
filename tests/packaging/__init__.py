"""What a user installs, locks and deploys, looked at from outside."""
