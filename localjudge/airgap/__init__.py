"""Install on a machine without a network: pack everything here, unpack it there."""
