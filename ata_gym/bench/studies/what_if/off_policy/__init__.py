"""What a log can say of a policy that did not write it: support, and doubly robust estimates."""
