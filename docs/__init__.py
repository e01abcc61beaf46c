"""What is made for readers: the site (``make docs``), and tables and pictures of the pages, by commands."""
