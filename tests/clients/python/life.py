"""A whole life on the official Python SDK, unmodified, which speaks REST. Says what it saw as one JSON object on its
standard output, at the end, and asks for Shutdown last."""

import json
import os
import sys
import time

from agones_python_sdk import ApiClient, Configuration, SDKApi
from agones_python_sdk.models.sdk_duration import SdkDuration
from agones_python_sdk.models.sdk_key_value import SdkKeyValue

PATIENCE = 120


def main():
    port = os.environ.get("AGONES_SDK_HTTP_PORT", "9358")
    sdk = SDKApi(ApiClient(Configuration(host=f"http://localhost:{port}")))
    seen = {"states": []}

    def state(name):
        until = time.monotonic() + PATIENCE
        while True:
            server = sdk.get_game_server()
            if server.status.state == name:
                seen["states"].append(name)
                return server
            if time.monotonic() > until:
                raise TimeoutError(f"never {name}: {server}")
            sdk.health(body={})
            time.sleep(0.02)

    sdk.health(body={})
    seen["name"] = sdk.get_game_server().object_meta.name
    sdk.set_label(body=SdkKeyValue(key="life", value="python"))
    sdk.set_annotation(body=SdkKeyValue(key="life", value="of a game on Python"))
    sdk.ready(body={})
    state("Ready")
    sdk.reserve(body=SdkDuration(seconds="1"))
    state("Reserved")
    state("Ready")
    sdk.allocate(body={})
    state("Allocated")
    watch = sdk.watch_game_server_without_preload_content()
    line = json.loads(watch.readline())
    seen["watched"] = line["result"]["status"]["state"]
    watch.close()
    sys.stdout.write(json.dumps(seen))
    sys.stdout.flush()
    sdk.shutdown(body={})


main()
