"""JSON documents of any shape that list timed items: a rule file says where."""
