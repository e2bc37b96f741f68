"""Everything for a machine without a network: pack it here, unpack it there."""
