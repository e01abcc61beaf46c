"""What is made for readers: the site (``make docs``), tables and pictures of pages."""
