"""The pages that `localjudge help TOPIC` prints. Tests run every command in them."""
