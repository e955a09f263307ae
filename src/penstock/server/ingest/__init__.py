"""Events in: from the bytes of a request to a push that is durable when it is answered."""
