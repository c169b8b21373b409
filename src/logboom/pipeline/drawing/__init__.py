"""A pipeline as a picture: what is read, what is done to it, where it goes.

`graph` takes nodes and edges out of a plan, `mermaid` writes them in the language of Mermaid, which GitHub and many
wikis draw, `svg` draws them itself. Must not know what a node does.
"""
