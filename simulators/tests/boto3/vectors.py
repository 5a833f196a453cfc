"""The vectors of the service with boto3, which speaks JSON 1.1 to GameLift and Query to Auto Scaling.

Everything comes by the environment: the endpoint (AWS_ENDPOINT_URL), the authority (AWS_CA_BUNDLE), credentials and
region; SIMULATOR_ADMIN is where orders are taken. It prints what it saw, as one object of JSON.
"""

import json
import os
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

GROUP = "pvp-eu"
ARN = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu"
ADMIN = os.environ["SIMULATOR_ADMIN"]


def admin(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(ADMIN + path, data=data, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def advance(milliseconds):
    admin("POST", "/clock/advance", {"ms": milliseconds})


def refusal(call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


once = Config(retries={"total_max_attempts": 1})
gamelift = boto3.client("gamelift", config=once)
scaling = boto3.client("autoscaling", config=once)
seen = {}

admin("PUT", f"/groups/{GROUP}", {"protection": "FULL_PROTECTION"})
instances = admin("POST", f"/groups/{GROUP}/instances", {"count": 7})["instances"]
first = instances[0]
one = {"GameServerGroupName": GROUP, "GameServerId": "one"}

registered = gamelift.register_game_server(**one, InstanceId=first)
seen["registered"] = registered["GameServer"]["UtilizationStatus"]
seen["has_request_id"] = bool(registered["ResponseMetadata"]["RequestId"])
seen["claimed"] = gamelift.claim_game_server(**one)["GameServer"]["ClaimStatus"]
advance(59_999)
seen["claim_at_59_999"] = gamelift.describe_game_server(**one)["GameServer"].get("ClaimStatus")
advance(1)
seen["claim_at_60_000"] = gamelift.describe_game_server(**one)["GameServer"].get("ClaimStatus")
gamelift.claim_game_server(**one)
seen["second_claim"] = refusal(gamelift.claim_game_server, **one)
updated = gamelift.update_game_server(**one, UtilizationStatus="UTILIZED", HealthCheck="HEALTHY")["GameServer"]
seen["updated"] = updated["UtilizationStatus"]
seen["minute"] = (updated["LastHealthCheckTime"] - updated["RegistrationTime"]).total_seconds()
seen["back_to_available"] = refusal(gamelift.update_game_server, **one, UtilizationStatus="AVAILABLE")
admin("PUT", "/groups/pve-eu", {})
other = admin("POST", "/groups/pve-eu/instances", {})["instances"][0]
seen["same_id_in_another_group"] = refusal(
    gamelift.register_game_server, GameServerGroupName="pve-eu", GameServerId="one", InstanceId=other
)
seen["short_instance_id"] = refusal(
    gamelift.register_game_server, GameServerGroupName=GROUP, GameServerId="two", InstanceId="i-0f3a9c2b-0000000x"
)
seen["by_arn"] = gamelift.describe_game_server(GameServerGroupName=ARN, GameServerId="one")["GameServer"]["GameServerId"]

pages = gamelift.get_paginator("describe_game_server_instances").paginate(
    GameServerGroupName=GROUP, PaginationConfig={"PageSize": 2}
)
listed = [[instance["InstanceId"] for instance in page["GameServerInstances"]] for page in pages]
seen["pages"] = [len(page) for page in listed]
seen["distinct"] = len({instance for page in listed for instance in page})

admin("PUT", "/throttle", {"limits": {"DescribeGameServer": {"burst": 1, "per_second": 1}}})
gamelift.describe_game_server(**one)
seen["throttled"] = refusal(gamelift.describe_game_server, **one)
admin("PUT", "/throttle", {"profile": "aws-2026"})

shown = scaling.describe_auto_scaling_instances(InstanceIds=[first, "i-00000000000000000"])["AutoScalingInstances"]
seen["scaling"] = [
    [one["AutoScalingGroupName"], one["LifecycleState"], one["HealthStatus"], one["ProtectedFromScaleIn"]]
    for one in shown
]
groups = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
seen["groups"] = sorted(group["AutoScalingGroupName"] for group in groups)
seen["unknown_hook"] = refusal(
    scaling.complete_lifecycle_action,
    LifecycleHookName="drain",
    AutoScalingGroupName="gamelift-gameservergroup-pvp-eu",
    InstanceId=first,
    LifecycleActionResult="CONTINUE",
)

admin("POST", f"/groups/{GROUP}/instances/{first}/status", {"status": "DRAINING"})
for _ in range(10):
    advance(60_000)
    gamelift.update_game_server(**one, HealthCheck="HEALTHY")
status = gamelift.describe_game_server_instances(GameServerGroupName=GROUP, InstanceIds=[first])
seen["draining_for_ten_minutes"] = [one["InstanceStatus"] for one in status["GameServerInstances"]]
gamelift.deregister_game_server(**one)
seen["second_deregistration"] = refusal(gamelift.deregister_game_server, **one)
advance(40_000)
status = gamelift.describe_game_server_instances(GameServerGroupName=GROUP, InstanceIds=[first])
seen["after_deregistration"] = status["GameServerInstances"]

second = instances[1]
admin("PUT", f"/instances/{second}/sessions", {"live": 1})
scaling.terminate_instance_in_auto_scaling_group(InstanceId=second, ShouldDecrementDesiredCapacity=False)
advance(5_000)
seen["violations"] = [loss["words"] for loss in admin("GET", "/audit")["violations"]]

wrong = boto3.client("gamelift", config=once, aws_secret_access_key="wrong", aws_access_key_id="simulator")
seen["wrong_secret"] = refusal(wrong.list_game_server_groups)
wrong = boto3.client("autoscaling", config=once, aws_secret_access_key="wrong", aws_access_key_id="simulator")
seen["wrong_secret_of_scaling"] = refusal(wrong.describe_auto_scaling_groups)

print(json.dumps(seen))
