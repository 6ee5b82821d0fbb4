"""Every exchange with the outside goes through here."""
