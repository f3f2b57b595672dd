"""A site of run files: static pages for any web server. Pages are made again only where their run files changed."""
