//! Every label, annotation, finalizer, taint, namespace and field manager that Berth reads or writes.
//!
//! The `agones.dev` names are fixed by the manifests, tools and clients that exist; the `berth.dev` ones are ours.

/// Namespace of Berth's own programs and of the node leases.
pub const SYSTEM_NAMESPACE: &str = "berth-system";

/// Finalizer on every GameServer: the object stays until its pod is gone.
pub const FINALIZER: &str = "agones.dev/controller";
/// Finalizer that older objects may carry; removed together with [`FINALIZER`].
pub const LEGACY_FINALIZER: &str = "agones.dev";

/// Pod label: what the pod is for; [`ROLE_GAME_SERVER`] on game pods.
pub const ROLE_LABEL: &str = "agones.dev/role";
/// Value of [`ROLE_LABEL`] on game pods.
pub const ROLE_GAME_SERVER: &str = "gameserver";
/// Pod label: name of the GameServer that owns the pod.
pub const GAME_SERVER_LABEL: &str = "agones.dev/gameserver";
/// Label of GameServers and sets: name of their Fleet.
pub const FLEET_LABEL: &str = "agones.dev/fleet";
/// Label of GameServers: name of their set.
pub const GAME_SERVER_SET_LABEL: &str = "agones.dev/gameserverset";
/// Pod label: whether a PodDisruptionBudget protects the pod.
pub const SAFE_TO_EVICT_LABEL: &str = "agones.dev/safe-to-evict";

/// Pod annotation: name of the game server container.
pub const CONTAINER_ANNOTATION: &str = "agones.dev/container";
/// Pod annotation: JSON object from container name to the indices of its passthrough ports.
pub const PASSTHROUGH_ANNOTATION: &str = "agones.dev/container-passthrough-port-assignment";
/// Annotation of GameServer, pod and Fleet: version of the system that made them.
pub const SDK_VERSION_ANNOTATION: &str = "agones.dev/sdk-version";
/// GameServer annotation: RFC 3339 time at which it went to Error.
pub const ERRORED_AT_ANNOTATION: &str = "agones.dev/errored-at";
/// GameServer annotation, set by a user: the address of a development server.
pub const DEV_ADDRESS_ANNOTATION: &str = "agones.dev/dev-address";
/// GameServer annotation: RFC 3339 time of the last allocation, with nanoseconds.
pub const LAST_ALLOCATED_ANNOTATION: &str = "agones.dev/last-allocated";
/// Prefix of labels and annotations that a game sets through the SDK.
pub const SDK_PREFIX: &str = "agones.dev/sdk-";
/// Pod annotation that cluster-autoscaler reads before it removes a node.
pub const AUTOSCALER_SAFE_TO_EVICT_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// GameServer annotation: the hand-over to a node, see [`crate::node_lease::HandOver`].
pub const LEASE_ANNOTATION: &str = "berth.dev/lease";
/// GameServer annotation: the node that handed the server back, and why, see [`crate::node_lease::Returned`].
pub const RETURNED_ANNOTATION: &str = "berth.dev/returned";
/// GameServer annotation: why kubelet would not run its pod; written before that pod is deleted, and gone with the
/// hand-back.
pub const REFUSED_ANNOTATION: &str = "berth.dev/refused";
/// GameServer annotation: number of the last SDK change that its status and metadata contain.
pub const SDK_APPLIED_ANNOTATION: &str = "berth.dev/sdk-applied";
/// GameServer annotation: UID of the one pod this GameServer ever has.
pub const POD_UID_ANNOTATION: &str = "berth.dev/pod-uid";
/// GameServer annotation: the game's container when the server became Ready, where its pod may restart containers.
pub const READY_CONTAINER_ANNOTATION: &str = "berth.dev/ready-container";
/// GameServer annotation: a short fixed word and a sentence, why the server left the states in which it could serve.
pub const REASON_ANNOTATION: &str = "berth.dev/reason";

/// GameServer annotation of `agones.dev/v1` where its sidecar was a container among others: the game's container when the
/// server became Ready.
pub const OLD_READY_CONTAINER_ANNOTATION: &str = "agones.dev/ready-container-id";
/// GameServer annotation, set by its author: which of its node's addresses players use, as a kind (`InternalIP`), a family
/// (`IPv6`) or both (`ExternalIP/IPv6`).
pub const ADDRESS_KIND_ANNOTATION: &str = "berth.dev/address-kind";
/// Node annotation, set by an operator: the address that players use for servers of this node, such as that of a NAT.
pub const ADDRESS_ANNOTATION: &str = "berth.dev/address";

/// GameServer annotation: when the brain gave it up, because the agent of its node had fallen silent. Its set has made
/// another; once the agent is back it goes, unless a session is on it.
pub const LOST_ANNOTATION: &str = "berth.dev/lost";

/// Pod label: UID of the GameServer whose room the pod holds until that has a node.
pub const PLACEHOLDER_LABEL: &str = "berth.dev/placeholder-for";
/// PriorityClass of such pods: they push nobody out, and autoscalers count them.
pub const PLACEHOLDER_PRIORITY: &str = "berth-placeholder";

/// Fleet annotation, set by its author: how many servers of the new version there may be above `replicas` while sessions
/// on old versions take up the rest, as a number or a percentage of `replicas`.
pub const UPDATE_SURGE_ANNOTATION: &str = "berth.dev/update-surge";

/// Annotation of a namespace, set by an operator: the service accounts that its game pods may run as, separated by commas;
/// any without it. Kept by an admission policy.
pub const SERVICE_ACCOUNTS_ANNOTATION: &str = "berth.dev/service-accounts";

/// Name of the PodDisruptionBudget that every namespace with game servers has.
pub const DISRUPTION_BUDGET: &str = "agones-gameserver-safe-to-evict-false";

/// Taint that a draining node carries and that game pods tolerate from the start.
pub const DRAINING_TAINT: &str = "gamelift.status/draining";
/// Taint of a node whose instance FleetIQ keeps; it stays while the node drains.
pub const ACTIVE_TAINT: &str = "gamelift.status/active";
/// Start-up taint, taken off once the instance is protected.
pub const UNPROTECTED_TAINT: &str = "gamelift.status/unprotected";
/// Taint that keeps everything but game servers from a node.
pub const GAME_SERVERS_TAINT: &str = "agones.dev/gameservers";
/// Value of all these taints.
pub const TAINT_VALUE: &str = "true";

/// Node annotation: how far the node's life with FleetIQ, or its drain, has come.
pub const NODE_PHASE_ANNOTATION: &str = "gamelift.status/phase";
/// Node annotation: the instance whose marks these are. Under another instance of the same Node name they are void.
pub const NODE_INSTANCE_ANNOTATION: &str = "gamelift.status/instance-id";
/// Node annotation: the game server group.
pub const NODE_GROUP_ANNOTATION: &str = "gamelift.status/group";
/// Node label, set by an operator: the game server group, where the environment of the agent does not say.
pub const NODE_GROUP_LABEL: &str = "gamelift.status/group";
/// Node annotation: RFC 3339 time of the last change of the phase.
pub const NODE_PHASE_SINCE_ANNOTATION: &str = "gamelift.status/phase-since";
/// Node annotation: why the node drains.
pub const NODE_DRAIN_REASON_ANNOTATION: &str = "gamelift.status/drain-reason";
/// Node annotation: RFC 3339 time by which the node will be gone, where that is known.
pub const NODE_DEADLINE_ANNOTATION: &str = "gamelift.status/deadline";
/// Node annotation: [`CORDONED_BY_AGENT`] where the agent closed the node for new pods, so that it alone opens it again.
pub const NODE_CORDONED_BY_ANNOTATION: &str = "gamelift.status/cordoned-by";
/// Value of [`NODE_CORDONED_BY_ANNOTATION`].
pub const CORDONED_BY_AGENT: &str = "agent";
/// Node annotation, set by an operator: [`DRAIN_REQUESTED`] empties the node.
pub const NODE_DRAIN_ANNOTATION: &str = "gamelift.status/drain";
/// Value of [`NODE_DRAIN_ANNOTATION`].
pub const DRAIN_REQUESTED: &str = "requested";
/// Node annotation: the notices that must outlive the agent, as JSON.
pub const NODE_NOTICES_ANNOTATION: &str = "berth.dev/notices";
/// Taint by which cluster-autoscaler says that it will delete a node.
pub const AUTOSCALER_DELETES_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// Taint by which Karpenter says that it will delete a node.
pub const KARPENTER_DISRUPTS_TAINT: &str = "karpenter.sh/disrupted";
/// Label of GameServers on a node that drains, so that selectors of allocations can avoid them.
pub const DRAINING_LABEL: &str = "gamelift.status/draining";
/// GameServer annotation: RFC 3339 time by which the server's node will be gone. Its game sees it in the SDK's watch.
pub const TERMINATING_AT_ANNOTATION: &str = "gamelift.status/terminating-at";
/// GameServer annotation: why its node drains. Its game sees it in the SDK's watch.
pub const DRAIN_REASON_ANNOTATION: &str = "gamelift.status/drain-reason";
/// Taint of a node whose kubelet reports not ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Taint of a node that the control plane cannot reach.
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// Environment variable in every container of a game pod: port of the SDK's gRPC listener.
pub const SDK_GRPC_PORT_ENV: &str = "AGONES_SDK_GRPC_PORT";
/// Environment variable in every container of a game pod: port of the SDK's REST listener.
pub const SDK_HTTP_PORT_ENV: &str = "AGONES_SDK_HTTP_PORT";

/// Label that Kubernetes sets on pods of a DaemonSet and on its revisions.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// Field manager and user agent of the agent.
pub const AGENT_MANAGER: &str = "berth-agent";
/// The allocator as writer of fields.
pub const ALLOCATOR_MANAGER: &str = "berth-allocator";
/// Field manager and user agent of the brain.
pub const BRAIN_MANAGER: &str = "berth-brain";
/// Name of the Lease that the acting brain holds in [`SYSTEM_NAMESPACE`].
pub const BRAIN_LEASE: &str = "berth-brain";
