"""Reads one instance's channel as its description says, with nothing but sockets, at the pace of a reader that takes one
step a message and then rests.

Usage: reader.py PORT INSTANCE REST-SECONDS STEPS. Prints a line of JSON for each message that it takes.
"""

import json
import socket
import sys
import time

port, instance, rest, steps = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])

connection = socket.create_connection(("127.0.0.1", port), timeout=120)
replies = connection.makefile("rb")


def send(*words):
    parts = [word.encode() for word in words]
    connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))


def receive():
    line = replies.readline().rstrip(b"\r\n")
    kind, value = line[:1], line[1:]
    if kind == b"*":
        return [receive() for _ in range(int(value))]
    if kind == b"$":
        text = replies.read(int(value) + 2)[:-2]
        return text.decode("utf-8")
    if kind == b":":
        return int(value)
    raise SystemExit(f"unexpected: {line!r}")


send("SUBSCRIBE", instance)
assert receive() == ["subscribe", instance, 1]
print(json.dumps({"subscribed": True}), flush=True)

for _ in range(steps):
    kind, channel, payload = receive()
    message = json.loads(payload)
    assert kind == "message" and channel == instance, (kind, channel)
    assert list(message) == ["GameServerGroupName", "GameServerGroupArn", "InstanceId", "InstanceStatus"], payload
    assert all(isinstance(value, str) for value in message.values()), payload
    assert message["InstanceId"] == instance
    assert message["InstanceStatus"] in ("ACTIVE", "DRAINING", "SPOT_TERMINATING")
    assert payload == json.dumps(message), payload
    print(json.dumps({"at": time.time(), "status": message["InstanceStatus"]}), flush=True)
    time.sleep(rest)
