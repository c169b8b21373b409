"""Small programs that keep the contract of `logboom serve --json`, for tests of what supervises it."""

NODE = """
import json, os, signal, sys, time
def end(*_):
    print("goes", file=sys.stderr, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("comes", file=sys.stderr, flush=True)
print(json.dumps({"pid": os.getpid()}), flush=True)
while True:
    signal.pause()
"""
FAILS = "import sys; print('starts\\nlogboom: no room\\nends', file=sys.stderr); sys.exit(3)"
STUBBORN = NODE.replace("os._exit(0)", "pass")
