"""`hattn tune`: measures this machine and keeps the winners in its tuning database (docs/tuning.md)."""
