"""What an API is to the server, and what it may know.

`handler` defines Handler: a version range, a function from a request to a reply, and what its requests need before they
begin. `context` is all that a handler may know besides the request. `route` finds the handler of a request and keeps
what is looked up once per version. `template_cache` recognises requests that need not be parsed. `turns` spreads
over several turns of the loop what thousands of connections wait for together.
"""
